"""FedDecorr: the dimensions of the features are kept uncorrelated.

Shi, Liang, Zhang, Tan, Bai. "Towards understanding and mitigating dimensional collapse in heterogeneous
federated learning". ICLR 2023, arXiv 2210.00226.

    client k:  min_w  CE(w) + beta L(Z),   Z the batch's features, N of them, D dimensions
               official:  z = (Z - mean) / sqrt(var + 1e-8),   L = mean_{i != j} (z^T z)_ij^2 / N
               fedbr:     z = (Z - mean) / (sd + 1e-4),        L = mean_{i, j} (z^T z / N)_ij^2
    server:    as FedAvg

Sent: as FedAvg. Defaults: beta = 0.1, the official form. The second form is that of Guo, Tang, Lin, ICML 2023
(FedBR), who print the same beta; it is smaller by about the batch size. Variances are unbiased in both. The
loss compares the samples of a batch: the last batch is filled up unless local.last_batch says otherwise; a
batch of one has no correlations and adds nothing. beta = 0 is FedAvg.
"""

from __future__ import annotations

from typing import Annotated

from accord.aggregate.mean import Weighting
from accord.algorithms.fedavg import averaging
from accord.core.algorithm import Method, Setup
from accord.parts.contrast import Beta, Decorrelation, DecorrForm
from accord.parts.registry import fitting


def feddecorr(
    setup: Setup,
    *,
    beta: Beta = 0.1,
    form: DecorrForm = "official",
    weight: Annotated[Weighting, "average by samples, or every client alike"] = "examples",
) -> Method:
    """Average models whose feature dimensions were decorrelated."""
    part = Decorrelation(beta, form)
    return averaging(fitting(setup, [part]), part, weight=weight)
