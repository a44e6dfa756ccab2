"""Accuracy and loss of predictions, and what is read off a curve of accuracy over rounds.

B samples, C classes. A history maps each evaluated round to its accuracy; rounds in between may be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import fsum, isnan

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from accord.errors import ConfigError, DataError

# A mean over test sets can miss a target by rounding alone; this is less than one sample in a billion.
ROUNDING = 1e-9


def num_correct(logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
    """0-d count of samples whose largest logit is at their label; with weights, the sum of these.

    A sample with a logit that is not a number counts as wrong; of equal logits the first one wins.
    """
    _check_shapes(logits, labels, weight)
    best, predicted = logits.max(dim=1)
    right = (predicted == labels) & ~best.isnan()
    return right.sum() if weight is None else (right * weight).sum()


def top1(logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> float:
    """Share of samples that are right, in [0, 1]."""
    right = num_correct(logits, labels, weight)
    _check_labels(labels, logits.shape[1])
    return float(right) / _total(labels, weight)


def mean_cross_entropy(logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> float:
    """Mean of `-log softmax(logits)[label]`, natural logarithm, summed in float64."""
    _check_shapes(logits, labels, weight)
    _check_labels(labels, logits.shape[1])
    losses = cross_entropy(logits.double(), labels, reduction="none")
    if weight is not None:
        # A padded sample may hold anything: without this, 0 * inf would spoil the sum.
        losses = torch.where(weight > 0, losses * weight, torch.zeros_like(losses))
    return float(losses.sum()) / _total(labels, weight)


def top_mean(history: Mapping[int, float], count: int = 5) -> float:
    """Mean of the `count` best rounds, of all where there are fewer; NaN is left out.

    >>> top_mean({1: 0.25, 2: 0.75, 3: 0.5}, 2)
    0.625
    """
    if count < 1:
        raise ConfigError(f"the number of rounds to average must be at least 1, got {count}")
    best = sorted((value for value in history.values() if not isnan(value)), reverse=True)[:count]
    if not best:
        raise DataError("no round was evaluated, so there is no accuracy to average")
    return fsum(best) / len(best)


def rounds_to(history: Mapping[int, float], targets: Iterable[float]) -> dict[float, int | None]:
    """For each target the first evaluated round with that accuracy or more; None where it is never reached.

    >>> rounds_to({10: 0.3, 20: 0.5, 30: 0.4}, [0.4, 0.6])
    {0.4: 20, 0.6: None}
    """
    curve = sorted(history.items())
    return {target: next((number for number, value in curve if value >= target - ROUNDING), None) for target in targets}


def _check_shapes(logits: Tensor, labels: Tensor, weight: Tensor | None) -> None:
    if logits.dim() != 2 or logits.shape[1] == 0 or labels.shape != logits.shape[:1]:
        raise DataError(
            "logits must be [samples, classes] and labels [samples], "
            f"got shapes {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    if weight is not None and weight.shape != labels.shape:
        raise DataError(f"weights must be [samples] = {tuple(labels.shape)}, got {tuple(weight.shape)}")


def _check_labels(labels: Tensor, classes: int) -> None:
    if len(labels) and (int(labels.min()) < 0 or int(labels.max()) >= classes):
        raise DataError(
            f"labels must lie in 0..{classes - 1}, got {int(labels.min())}..{int(labels.max())}; "
            "does the network have as many outputs as there are classes?"
        )


def _total(labels: Tensor, weight: Tensor | None) -> float:
    total = float(len(labels)) if weight is None else float(weight.sum())
    if total <= 0:
        raise DataError("there are no samples to judge; a client without test data has no accuracy")
    return total
