"""The area below the ROC curve."""

from __future__ import annotations

from torch import Tensor

from accord.measures.metric import metric
from accord.measures.ranking import one_against_rest


@metric(
    "auroc",
    title="AUROC",
    problems=("classification", "multilabel"),
    extra="metrics",
    doc="area below the ROC curve; of more than two classes the mean, each against the rest",
)
def auroc(logits: Tensor, labels: Tensor) -> float:
    """How often a sample of the class is ranked above one that is not; ties count half."""
    from sklearn.metrics import roc_auc_score

    return one_against_rest(roc_auc_score, logits, labels)
