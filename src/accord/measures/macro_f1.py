"""The F1 score, class by class."""

from __future__ import annotations

import torch
from torch import Tensor

from accord.measures.metric import metric


@metric("macro_f1", percent=True, doc="F1 score of each class, averaged over those that occur or are predicted")
def macro_f1(logits: Tensor, labels: Tensor) -> float:
    """2 TP / (2 TP + FP + FN), every class counting the same."""
    classes, predicted = logits.shape[1], logits.argmax(1)
    true_positives = torch.bincount(labels[predicted == labels], minlength=classes).double()
    # a class occurs TP + FN times and is predicted TP + FP times
    counts = torch.bincount(labels, minlength=classes) + torch.bincount(predicted, minlength=classes)
    return float((2 * true_positives / counts)[counts > 0].mean())
