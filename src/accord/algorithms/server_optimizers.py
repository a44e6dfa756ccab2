"""FedAvgM, FedAdam, FedYogi: FedAvg with an optimizer on the server.

Hsu, Qi, Brown, arXiv 1909.06335 (FedAvgM); Reddi et al., "Adaptive federated optimization", ICLR 2021,
arXiv 2003.00295 (FedAdam, FedYogi).

    d = sum_k a_k w_k - w_t
    FedAvgM:  v <- beta v + d,                           w <- w + eta v
    FedAdam:  m <- b1 m + (1 - b1) d,  v <- b2 v + (1 - b2) d^2,                 w <- w + eta m / (sqrt(v) + tau)
    FedYogi:  as FedAdam with v <- v - (1 - b2) d^2 sign(v - d^2)

Sent: as FedAvg. The moments stay on the server. Defaults are the paper's; FedAvgM with eta = 1, beta = 0 is FedAvg.
Buffers are averaged.
"""

from __future__ import annotations

from typing import Annotated

import accord.authoring as fl
from accord.aggregate import FedAdam, FedAvgM, ServerOptimizer, ServerStep


def _with_server(setup: fl.Setup, step: ServerStep) -> fl.Method:
    return setup.method(setup.local(fl.SampleLoss()), {"model": ServerOptimizer(step), "buffers": fl.Mean()})


@fl.method("server")
def fedavgm(
    setup: fl.Setup,
    *,
    server_lr: Annotated[float, fl.Range(above=0), fl.Search(0.1, 1.0, log=True), "eta"] = 1.0,
    beta: Annotated[float, fl.Range(low=0, below=1), fl.Search(choices=(0.5, 0.7, 0.9)), "server momentum"] = 0.9,
) -> fl.Method:
    """FedAvg with server momentum."""
    return _with_server(setup, FedAvgM(server_lr, beta))


@fl.method("server")
def fedadam(
    setup: fl.Setup,
    *,
    server_lr: Annotated[float, fl.Range(above=0), fl.Search(1e-3, 0.1, log=True), "eta"] = 0.01,
    beta1: Annotated[float, fl.Range(low=0, below=1), "decay of the first moment"] = 0.9,
    beta2: Annotated[float, fl.Range(low=0, below=1), "decay of the second moment"] = 0.99,
    tau: Annotated[float, fl.Range(above=0), fl.Search(1e-4, 1e-1, log=True), "degree of adaptivity"] = 1e-3,
) -> fl.Method:
    """FedAvg with Adam on the server."""
    return _with_server(setup, FedAdam(server_lr, (beta1, beta2), tau))


@fl.method("server")
def fedyogi(
    setup: fl.Setup,
    *,
    server_lr: Annotated[float, fl.Range(above=0), fl.Search(1e-3, 0.1, log=True), "eta"] = 0.01,
    beta1: Annotated[float, fl.Range(low=0, below=1), "decay of the first moment"] = 0.9,
    beta2: Annotated[float, fl.Range(low=0, below=1), "decay of the second moment"] = 0.99,
    tau: Annotated[float, fl.Range(above=0), fl.Search(1e-4, 1e-1, log=True), "degree of adaptivity"] = 1e-3,
) -> fl.Method:
    """FedAvg with Yogi on the server."""
    return _with_server(setup, FedAdam(server_lr, (beta1, beta2), tau, yogi=True))
