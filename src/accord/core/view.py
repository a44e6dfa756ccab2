"""What a part sees during a step, and what it answers: terms of the loss, made where padding cannot be forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from accord.core.model import Model, Out
from accord.core.tensors import Trees
from accord.core.types import Batch, Carry, Job, weighted_mean


@dataclass(frozen=True, eq=False)
class Term:
    """A term of the loss, 0-d. Made by `View.mean` or `View.whole`; terms are added, and multiplied by numbers."""

    value: Tensor

    def __add__(self, other: Term) -> Term:
        return Term(self.value + other.value)

    def __sub__(self, other: Term) -> Term:
        return Term(self.value - other.value)

    def __rmul__(self, factor: float) -> Term:
        return Term(factor * self.value)


class View(NamedTuple):
    """What a part sees during a step."""

    model: Model
    job: Job
    carry: Carry
    params: Trees  # trained trees as autograd leaves: params["model"], and those other parts train
    out: Out  # of the trained model on this batch
    batch: Batch

    def losses(self, outputs: Tensor) -> Tensor:
        """[B] the problem's loss of these outputs for the batch's labels."""
        return self.model.problem.loss(outputs, self.batch.y)

    def mean(self, values: Tensor) -> Term:
        """The mean of [B] values, one per sample of the batch, over the samples that count (weight 0 is padding)."""
        if values.shape != self.batch.weight.shape:
            raise ValueError(
                f"view.mean takes one value per sample, shape {tuple(self.batch.weight.shape)}, and got "
                f"{tuple(values.shape)}: use reduction='none', and sum over what is not the batch"
            )
        return Term(weighted_mean(values, self.batch.weight))

    def whole(self, value: Tensor) -> Term:
        """A number that is no mean over the batch: of weights, of other samples, or of samples compared with another.

        Where it reads the batch it must leave out the samples with `batch.weight` 0 by itself.
        """
        return Term(value)
