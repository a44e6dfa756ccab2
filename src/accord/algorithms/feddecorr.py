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

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

import accord.authoring as fl

Form = Literal["official", "fedbr"]


def decorrelation(features: Tensor, weight: Tensor, form: Form) -> Tensor:
    """Mean squared correlation of the [B, D] features over the samples that count; 0 for a single sample."""
    count, dims = weight.sum(), features.shape[1]
    rows = weight.unsqueeze(1)
    centred = (features - (features * rows).sum(0) / count) * rows
    variance = centred.square().sum(0) / (count - 1).clamp(min=1)
    if form == "official":
        scaled = centred / (variance + 1e-8).sqrt()
        products = scaled.T @ scaled
        apart = products * (1 - torch.eye(dims, dtype=products.dtype, device=products.device))
        return apart.square().sum() / max(dims * (dims - 1), 1) / count
    # A dead feature has no slope at deviation 0: take the root of 1 there, and 0 for its value.
    alive = variance > 0
    deviation = torch.where(alive, torch.where(alive, variance, 1.0).sqrt(), 0.0)
    scaled = centred / (deviation + 1e-4)
    return (scaled.T @ scaled / count).square().mean()


@dataclass(frozen=True)
class Decorrelation(fl.Part):
    """beta times the mean squared correlation between the dimensions of the batch's features."""

    problems = ("any",)
    beta: float = 0.1
    form: Form = "official"

    @property
    def couples(self) -> bool:
        """Compares the samples of a batch."""
        return self.beta > 0

    def loss(self, view: fl.View) -> fl.Term | None:
        """None at beta = 0."""
        if self.beta == 0:
            return None
        return view.whole(self.beta * decorrelation(view.out.features, view.batch.weight, self.form))


@fl.method("client", part=("beta", "form"))
def feddecorr(
    setup: fl.Setup,
    *,
    beta: Annotated[
        float, fl.AtLeast(0), fl.Search(choices=(0.01, 0.05, 0.1, 0.2, 0.3)), "weight of the correlation penalty"
    ] = 0.1,
    form: Annotated[Form, "the published code's off-diagonal mean, or FedBR's of all entries"] = "official",
    weight: fl.Weight = "examples",
) -> fl.Method:
    """Average models whose feature dimensions were decorrelated."""
    return fl.averaging(setup, Decorrelation(beta, form), weight=weight)
