"""The F1 score of two classes."""

from __future__ import annotations

import math

from torch import Tensor

from accord.measures.metric import metric


@metric("f1", percent=True, classes=2, doc="F1 score of the second of two classes, the positive one")
def f1(logits: Tensor, labels: Tensor) -> float:
    """2 TP / (2 TP + FP + FN); not defined where nothing is positive or called so."""
    predicted, positive = logits.argmax(1) == 1, labels == 1
    counts = int(predicted.sum()) + int(positive.sum())
    return 2 * int((predicted & positive).sum()) / counts if counts else math.nan
