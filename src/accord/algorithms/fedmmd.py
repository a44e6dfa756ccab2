"""FedMMD: the local model's outputs stay distributed like the global model's.

Yao, Huang, Wu, Zhang, Sun. "Federated learning with additional mechanisms on clients to reduce communication
costs". arXiv 1908.05891, 2019. First in Yao, Huang, Sun. "Two-stream federated learning: reduce the
communication costs". VCIP 2018.

    client k:  min_w  CE(w) + lam * max(floor, MMD^2(G, L)),  [B, C] logits G = h(x; w_t), frozen, L = h(x; w)
               MMD^2(G, L) = mean_ij k(g_i, g_j) + mean_ij k(l_i, l_j) - 2 mean_ij k(g_i, l_j)
               k(a, b) = sum_s exp(-|a - b|^2 / 2s)
    fedl2:     min_w  CE(w) + (lam / 2) sum_{i,c} (G - L)^2_ic,   a sum over batch and classes
    server:    w_{t+1} = mean_k w_k   (uniform)

Sent: as FedAvg, the model down and up; the frozen stream is the received model. It is run once per client and
round over the client's samples, in evaluation mode; when another part mixes the batch, in every step.

Defaults: lam = 0.1 (MMD) and 0.001 (L2, the paper's for MNIST; it tried 0.1 and 0.01 on CIFAR-10). The paper
leaves open which outputs and which kernel. From its published code: logits, 19 `fixed` widths s from 1e-6 to
1e6 with their kernels summed, and the floor of 1e-4 under which there is no gradient (so none in the first
step of a round, where G = L). `median` is the choice of DAN (Long et al., ICML 2015): s = 2^-3, ..., 2^1
times the mean squared distance between the outputs of the batch.
MMD compares the samples of a batch: the last one is filled up unless local.last_batch says otherwise, and
batches of one are refused. lam = 0 is FedAvg with uniform weights.
"""

from __future__ import annotations

from typing import Annotated

from accord.aggregate.mean import Weighting
from accord.algorithms.fedavg import averaging
from accord.core.algorithm import Method, Setup
from accord.errors import ConfigError
from accord.parts.bounds import within
from accord.parts.mmd import MMD, Kernel, Output, OutputL2
from accord.settings import NOT_NEGATIVE, Search


def fedmmd(
    setup: Setup,
    *,
    lam: Annotated[float, NOT_NEGATIVE, Search(0.01, 1.0, log=True), "weight of the discrepancy"] = 0.1,
    kernel: Annotated[Kernel, "19 fixed widths, or five around the batch's mean distance"] = "fixed",
    floor: Annotated[float, NOT_NEGATIVE, "discrepancies below this have no gradient"] = 1e-4,
    on: Annotated[Output, "which outputs of the two models are compared"] = "logits",
    weight: Annotated[Weighting, "average by samples, or every client alike"] = "uniform",
) -> Method:
    """Average models whose outputs were held near the global model's, as distributions."""
    within(NOT_NEGATIVE, lam=lam, floor=floor)
    if lam == 0:
        return averaging(setup, weight=weight)
    if setup.plan.batch_size == 1:
        raise ConfigError(
            "algorithm fedmmd compares the samples of a batch, but local.batch_size = 1; use at least 2 "
            "(0 for all of a client's data), or algorithm fedl2, which compares sample by sample"
        )
    return averaging(setup.coupled(), MMD(lam, on, kernel, floor), weight=weight)


def fedl2(
    setup: Setup,
    *,
    lam: Annotated[float, NOT_NEGATIVE, Search(1e-4, 0.1, log=True), "weight of the difference"] = 1e-3,
    on: Annotated[Output, "which outputs of the two models are compared"] = "logits",
    weight: Annotated[Weighting, "average by samples, or every client alike"] = "uniform",
) -> Method:
    """Average models whose outputs were held near the global model's, sample by sample."""
    within(NOT_NEGATIVE, lam=lam)
    return averaging(setup, OutputL2(lam, on), weight=weight)
