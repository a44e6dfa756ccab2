"""The F1 score of all decisions together."""

from __future__ import annotations

from torch import Tensor

from accord.measures.metric import metric


@metric(
    "micro_f1", percent=True, doc="F1 score of all decisions together; with one label per sample it is the accuracy"
)
def micro_f1(logits: Tensor, labels: Tensor) -> float:
    """A wrong answer is a false positive of one class and a false negative of another."""
    return float((logits.argmax(1) == labels).double().mean())
