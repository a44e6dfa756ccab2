"""Numbers by which runs are judged: pure functions of arrays and tensors."""

from accord.metrics.accuracy import mean_cross_entropy, num_correct, rounds_to, top1, top_mean
from accord.metrics.communication import human_bytes, num_bytes
from accord.metrics.drift import cosine, cosines
from accord.metrics.fairness import Spread, spread
from accord.metrics.retrieval import Retrieval, mean_average_precision

__all__ = [
    "Retrieval",
    "Spread",
    "cosine",
    "cosines",
    "human_bytes",
    "mean_average_precision",
    "mean_cross_entropy",
    "num_bytes",
    "num_correct",
    "rounds_to",
    "spread",
    "top1",
    "top_mean",
]
