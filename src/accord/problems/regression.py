"""Numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from accord.errors import DataError
from accord.problems.problem import Problem, Shape, entry


@entry
@dataclass(frozen=True)
class Regression(Problem):
    """One or several real numbers per sample: squared error, and its root in the labels' own unit.

    Labels are taken as they are: whoever wants them standardised does it, and reads errors in that unit.
    """

    name = "regression"
    headline = "rmse"
    title = "RMSE"
    higher_is_better = False
    share = False
    real_labels = True
    output = ("number", "numbers")
    reading = staticmethod(math.sqrt)

    def check(self, y: Tensor, outputs: int, part: str) -> None:
        """[N] or [N, D] finite real numbers."""
        if y.dim() not in (1, 2) or (y.shape[1] if y.dim() == 2 else 1) != outputs:
            raise DataError(
                f"regression of {outputs} numbers needs labels [N{'' if outputs == 1 else f', {outputs}'}]; those of "
                f"the {part} part have shape {tuple(y.shape)}"
            )
        if not y.dtype.is_floating_point:
            raise DataError(f"labels of the {part} part must be real numbers for regression, not {y.dtype}: y.float()")
        bad = torch.nonzero(~torch.isfinite(y.reshape(len(y), -1)).all(1)).flatten()
        if len(bad):
            raise DataError(
                f"{len(bad)} labels of the {part} part are NaN or infinite, the first at position {int(bad[0])}: "
                "leave these samples out"
            )

    def shape(self, label: Shape, outputs: int) -> Shape:
        """A number for every number asked for."""
        return (outputs,)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """[B] squared errors, the mean over the numbers of a sample."""
        return (outputs - y.reshape(outputs.shape)).square().mean(1)

    def predicted(self, outputs: Tensor) -> Tensor:
        """[B, D] the numbers."""
        return outputs

    def score(self, outputs: Tensor, y: Tensor) -> Tensor:
        """[B] squared errors."""
        return (outputs.double() - y.reshape(outputs.shape).double()).square().mean(1)
