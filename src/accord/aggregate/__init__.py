"""Rules that fold the clients' trees into the server's."""

from accord.aggregate.mean import EMA, Mean, Weighting
from accord.aggregate.server_opt import FedAdam, FedAvgM, ServerOptimizer, ServerStep, stepped

__all__ = ["EMA", "FedAdam", "FedAvgM", "Mean", "ServerOptimizer", "ServerStep", "Weighting", "stepped"]
