"""Any number of labels per sample."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from accord.errors import DataError
from accord.problems.problem import Problem, Shape, constant, entry


@entry
@dataclass(frozen=True)
class Multilabel(Problem):
    """Each of C labels is true of a sample or not: binary cross-entropy, and the share of labels judged right."""

    name = "multilabel"
    headline = "accuracy"
    title = "accuracy"
    higher_is_better = True
    share = True
    metrics = frozenset({"accuracy", "macro_f1", "f1", "auroc", "average_precision", "ece"})
    output = ("label", "labels")
    weighs = True

    def check(self, y: Tensor, outputs: int, part: str) -> None:
        """[N, C] of 0 and 1."""
        if y.dim() != 2 or y.shape[1] != outputs:
            raise DataError(
                f"multilabel data has a 0 or 1 for each of {outputs} labels of a sample, [N, {outputs}]; labels of the "
                f"{part} part have shape {tuple(y.shape)}"
            )
        bad = torch.nonzero(((y != 0) & (y != 1)).any(1)).flatten()
        if len(bad):
            raise DataError(
                f"multilabel data has labels of 0 and 1 only, but {len(bad)} samples of the {part} part have others, "
                f"the first at position {int(bad[0])}: {y[bad[0]].tolist()[:10]}"
            )

    def shape(self, label: Shape, outputs: int) -> Shape:
        """A real number for every label."""
        return (outputs,)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """[B] binary cross-entropies with logits, the mean over labels."""
        weight = constant(self.weights, outputs.dtype, outputs.device) if self.weights else None
        y = y.to(outputs.dtype)
        each = functional.binary_cross_entropy_with_logits(outputs, y, pos_weight=weight, reduction="none")
        return each.mean(1)

    def predicted(self, outputs: Tensor) -> Tensor:
        """[B, C] 1 where a label is likelier than not."""
        return (outputs > 0).long()

    def score(self, outputs: Tensor, y: Tensor) -> Tensor:
        """[B] the share of the labels that are right; nothing is right about NaN."""
        return (((outputs > 0) == (y > 0)) & ~outputs.isnan()).double().mean(1)

    def balanced(self, y: Tensor, outputs: int) -> tuple[float, ...]:
        """Negatives over positives of every label; 1 where it is never, or always, true."""
        positive = (y > 0).double().sum(0)
        negative = len(y) - positive
        both = (positive > 0) & (negative > 0)
        return tuple(torch.where(both, negative / positive.clamp(min=1), 1.0).tolist())
