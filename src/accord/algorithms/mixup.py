"""Mixup: FedAvg on mixed samples.

Zhang, Cisse, Dauphin, Lopez-Paz. "mixup: Beyond empirical risk minimization". ICLR 2018, arXiv 1710.09412; in
federated learning as a baseline of Guo, Tang, Lin, ICML 2023 (FedBR).

    client k, every batch:  l ~ Beta(alpha, alpha),  j a random permutation of the batch
               x~ = l x_i + (1 - l) x_j,   loss = l CE(h(x~), y_i) + (1 - l) CE(h(x~), y_j)
    server:    as FedAvg

Sent: as FedAvg. Defaults: alpha = 0.2, one l per batch. The two terms are computed as one cross-entropy with
soft labels, which is the same number. A short last batch is mixed within itself. alpha = 0 is FedAvg.
"""

from __future__ import annotations

from typing import Annotated

from accord.aggregate.mean import Weighting
from accord.algorithms.fedavg import averaging
from accord.core.algorithm import Method, Setup
from accord.parts.mixing import Alpha, Mixup


def mixup(
    setup: Setup,
    *,
    alpha: Alpha = 0.2,
    weight: Annotated[Weighting, "average by samples, or every client alike"] = "examples",
) -> Method:
    """Average models trained on mixed samples."""
    return averaging(setup, Mixup(alpha), weight=weight)
