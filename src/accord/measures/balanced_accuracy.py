"""Accuracy that does not reward the frequent classes."""

from __future__ import annotations

import torch
from torch import Tensor

from accord.measures.metric import metric


@metric(
    "balanced_accuracy",
    percent=True,
    problems=("classification",),
    doc="accuracy of each class, averaged over the classes that occur",
)
def balanced_accuracy(logits: Tensor, labels: Tensor) -> float:
    """Every class counts the same, however many samples it has."""
    classes = logits.shape[1]
    right = torch.bincount(labels[logits.argmax(1) == labels], minlength=classes).double()
    total = torch.bincount(labels, minlength=classes)
    return float((right / total)[total > 0].mean())
