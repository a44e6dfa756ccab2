"""The F1 score, 2 TP / (2 TP + FP + FN): of the positive class, of each class, of all decisions together."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from accord.measures.metric import metric


def per_class(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """[C] true positives, and how often a class occurs (TP + FN) and is predicted (TP + FP), together."""
    if labels.dim() == 2:  # any number of labels per sample: those likelier than not are predicted
        predicted, truth = logits > 0, labels > 0
        return (predicted & truth).sum(0).double(), predicted.sum(0) + truth.sum(0)
    classes, named = logits.shape[1], logits.argmax(1)
    right = torch.bincount(labels[named == labels], minlength=classes).double()
    return right, torch.bincount(labels, minlength=classes) + torch.bincount(named, minlength=classes)


@metric(
    "f1",
    percent=True,
    problems=("classification",),
    classes=2,
    doc="F1 score of the second of two classes, the positive one",
)
def f1(logits: Tensor, labels: Tensor) -> float:
    """Not defined where nothing is positive or called so."""
    right, counts = per_class(logits, labels)
    return float(2 * right[1] / counts[1]) if counts[1] else math.nan


@metric(
    "macro_f1",
    percent=True,
    problems=("classification", "multilabel"),
    doc="F1 score of each class, averaged over those that occur or are predicted",
)
def macro_f1(logits: Tensor, labels: Tensor) -> float:
    """Every class counts the same."""
    right, counts = per_class(logits, labels)
    return float((2 * right / counts)[counts > 0].mean())


@metric(
    "micro_f1",
    percent=True,
    problems=("classification", "multilabel"),
    doc="F1 score of all decisions together; with one label per sample it is the accuracy",
)
def micro_f1(logits: Tensor, labels: Tensor) -> float:
    """Every decision counts the same; not defined where there is no label and none is predicted."""
    right, counts = per_class(logits, labels)
    return float(2 * right.sum() / counts.sum()) if counts.sum() else math.nan
