"""One class per sample."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from accord.errors import DataError
from accord.problems.problem import Problem, Shape, constant, entry, is_whole


@entry
@dataclass(frozen=True)
class Classification(Problem):
    """Every sample has one of C classes: cross-entropy, and the share of samples judged right."""

    name = "classification"
    headline = "accuracy"
    title = "accuracy"
    higher_is_better = True
    share = True
    metrics = frozenset({"accuracy", "balanced_accuracy", "macro_f1", "f1", "auroc", "average_precision", "ece", "map"})
    output = ("class", "classes")
    one_class = True
    weighs = True

    def check(self, y: Tensor, outputs: int, part: str) -> None:
        """Whole numbers from 0 to C - 1, one per sample."""
        if y.dim() != 1:
            raise DataError(f"the {part} part needs one label per sample; got labels of shape {tuple(y.shape)}")
        if not is_whole(y):
            raise DataError(f"labels of the {part} part must be whole numbers, not {y.dtype}")
        bad = torch.nonzero((y < 0) | (y >= outputs)).flatten()
        if len(bad):
            raise DataError(
                f"{len(bad)} labels of the {part} part are not class numbers, the first is {int(y[bad[0]])} at "
                f"position {int(bad[0])}; {outputs} classes allow 0 to {outputs - 1}. Renumber from 0"
            )

    def shape(self, label: Shape, outputs: int) -> Shape:
        """A real number for every class."""
        return (outputs,)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """[B] cross-entropies with class indices [B] or soft labels [B, C]."""
        weight = constant(self.weights, outputs.dtype, outputs.device) if self.weights else None
        return functional.cross_entropy(outputs, y, weight=weight, reduction="none")

    def mean_loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """As torch sums it up, which is in another order than a mean of the losses."""
        return super().mean_loss(outputs, y) if self.weights else functional.cross_entropy(outputs, y)

    def predicted(self, outputs: Tensor) -> Tensor:
        """[B] class numbers; of equal logits the first wins."""
        return outputs.argmax(1)

    def score(self, outputs: Tensor, y: Tensor) -> Tensor:
        """[B] 1 where the largest logit is at the label; nothing is right about NaN."""
        best, predicted = outputs.max(dim=1)
        return ((predicted == y) & ~best.isnan()).double()

    def balanced(self, y: Tensor, outputs: int) -> tuple[float, ...]:
        """n / (C n_c) over the C classes that occur; their mean over the samples is 1, as without weights."""
        counts = torch.bincount(y, minlength=outputs).double()
        there = counts > 0
        return tuple(torch.where(there, len(y) / (there.sum() * counts.clamp(min=1)), 1.0).tolist())
