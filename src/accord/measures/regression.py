"""Errors of numbers. The root of the mean squared one is the leading number of a regression and always told.

Outputs are [N, D], labels [N] or [N, D]; where D is more than one, the mean over the D numbers.
"""

from __future__ import annotations

from torch import Tensor

from accord.measures.metric import metric


@metric(
    "mae",
    title="MAE",
    better="lower",
    problems=("regression",),
    always=("regression",),
    doc="mean absolute error",
)
def mae(outputs: Tensor, labels: Tensor) -> float:
    """In the labels' own unit."""
    return float((outputs.double() - labels.double().reshape(outputs.shape)).abs().mean())


@metric(
    "r2",
    title="R2",
    problems=("regression",),
    always=("regression",),
    doc="coefficient of determination: 1 - squared error / squared distance of the labels from their mean",
)
def r2(outputs: Tensor, labels: Tensor) -> float:
    """Not defined where all labels are equal, and so not of one sample."""
    y = labels.double().reshape(outputs.shape)
    error, spread = (outputs.double() - y).square().sum(0), (y - y.mean(0)).square().sum(0)
    return float((1 - error / spread)[spread > 0].mean())  # of nothing it is NaN
