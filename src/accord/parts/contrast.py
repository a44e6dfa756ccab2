"""Losses on features: how near they are to one another, and how correlated their dimensions are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from accord.core.algorithm import Setup
from accord.core.task import Part, View
from accord.parts.bounds import one_of, within
from accord.settings import NOT_NEGATIVE, Search

Form = Literal["official", "fedbr"]
Beta = Annotated[float, NOT_NEGATIVE, Search(choices=(0.01, 0.05, 0.1, 0.2, 0.3)), "weight of the correlation penalty"]
DecorrForm = Annotated[Form, "the published code's off-diagonal mean, or FedBR's of all entries"]


def contrast(anchor: Tensor, positive: Tensor, negative: Tensor, tau: float) -> Tensor:
    """[B] -log(e^{p / tau} / (e^{p / tau} + e^{n / tau})), p and n the cosines of paired rows to it."""
    nearer = functional.cosine_similarity(anchor, negative) - functional.cosine_similarity(anchor, positive)
    return functional.softplus(nearer / tau)


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
class Decorrelation(Part):
    """beta times the mean squared correlation between the dimensions of the batch's features."""

    beta: float = 0.1
    form: Form = "official"

    def __post_init__(self) -> None:
        within(NOT_NEGATIVE, beta=self.beta)
        one_of(get_args(Form), form=self.form)

    @property
    def couples(self) -> bool:
        """Compares the samples of a batch."""
        return self.beta > 0

    def loss(self, view: View) -> Tensor | None:
        """None at beta = 0."""
        if self.beta == 0:
            return None
        return self.beta * decorrelation(view.out.features, view.batch.weight, self.form)


def feddecorr(setup: Setup, *, beta: Beta = 0.1, form: DecorrForm = "official") -> Decorrelation:
    """The part by its settings."""
    return Decorrelation(beta, form)
