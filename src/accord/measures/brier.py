"""The mean squared error of probabilities."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from accord.measures.metric import metric


@metric(
    "brier",
    better="lower",
    problems=("classification",),
    doc="Brier score: squared error of the probabilities, summed over classes, 0 to 2",
)
def brier(logits: Tensor, labels: Tensor) -> float:
    """As Brier wrote it in 1950; of two classes it is twice the form that looks at the positive one alone."""
    probabilities = logits.double().softmax(1)
    truth = functional.one_hot(labels, logits.shape[1])
    return float((probabilities - truth).square().sum(1).mean())
