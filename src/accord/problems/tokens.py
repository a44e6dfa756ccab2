"""A label per position: texts and other sequences."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from accord.errors import DataError
from accord.problems.problem import Problem, Shape, entry, is_whole

NO_LABEL = -100  # at padding, and wherever nothing is to be said; the number torch's cross-entropy leaves out


@entry
@dataclass(frozen=True)
class Tokens(Problem):
    """One of V classes at every labelled position of a sample.

    A sample's loss, and the share of it that is right, are means over its labelled positions; every sample counts the
    same, however long it is.
    """

    name = "tokens"
    headline = "accuracy"
    title = "accuracy"
    higher_is_better = True
    share = True
    metrics = frozenset({"accuracy", "perplexity"})
    output = ("class", "classes")

    def check(self, y: Tensor, outputs: int, part: str) -> None:
        """[N, L] whole numbers from 0 to V - 1, or -100; every sample has a label somewhere."""
        if y.dim() != 2 or not is_whole(y):
            raise DataError(
                f"tokens needs a whole number for every position, [N, L], with {NO_LABEL} where there is none; labels "
                f"of the {part} part have shape {tuple(y.shape)} and type {y.dtype}"
            )
        bad = torch.nonzero((y != NO_LABEL) & ((y < 0) | (y >= outputs)))
        if len(bad):
            row, place = bad[0].tolist()
            raise DataError(
                f"{len(bad)} labels of the {part} part are no class numbers, the first is {int(y[row, place])} in "
                f"sample {row}; {outputs} classes allow 0 to {outputs - 1}, and {NO_LABEL} says that there is none"
            )
        silent = torch.nonzero((y == NO_LABEL).all(1)).flatten()
        if len(silent):
            raise DataError(
                f"{len(silent)} samples of the {part} part have no label at any position, the first at position "
                f"{int(silent[0])}: leave them out"
            )

    def shape(self, label: Shape, outputs: int) -> Shape:
        """A real number for every class at every position."""
        return (*label, outputs)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """[B] cross-entropies, the mean over a sample's labelled positions."""
        each = functional.cross_entropy(outputs.flatten(0, 1), y.flatten(), ignore_index=NO_LABEL, reduction="none")
        return _mean(each.view(y.shape), y)

    def predicted(self, outputs: Tensor) -> Tensor:
        """[B, L] class numbers."""
        return outputs.argmax(-1)

    def score(self, outputs: Tensor, y: Tensor) -> Tensor:
        """[B] the share of its labelled positions that is right; nothing is right about NaN."""
        best, predicted = outputs.max(dim=-1)
        return _mean(((predicted == y) & ~best.isnan()).double(), y)


def _mean(values: Tensor, y: Tensor) -> Tensor:
    """[B] over the labelled positions; 0 where there is none, as in rows that only fill a batch."""
    labelled = (y != NO_LABEL).to(values.dtype)
    return (values * labelled).sum(1) / labelled.sum(1).clamp(min=1)
