"""The area below the curve of precision and recall."""

from __future__ import annotations

from torch import Tensor

from accord.measures.metric import metric
from accord.measures.ranking import one_against_rest


@metric(
    "average_precision",
    problems=("classification", "multilabel"),
    extra="metrics",
    doc="area below the precision-recall curve, in steps; of more than two classes as auroc",
)
def average_precision(logits: Tensor, labels: Tensor) -> float:
    """The sum over thresholds of the gain in recall times the precision there; nothing is interpolated."""
    from sklearn.metrics import average_precision_score

    return one_against_rest(average_precision_score, logits, labels)
