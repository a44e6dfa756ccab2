"""Areas below curves of ranked samples, by scikit-learn: each class against all others, the mean over the classes.

A class counts where the samples show it and something else; of two classes only the second one, the positive, is
ranked. Samples are ranked by the log-odds of the class, which order them as its probabilities do and never saturate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

Array = npt.NDArray[Any]
Ranked = Callable[[Array, Array], float]  # truth and scores, [N] or [N, classes]: the mean over the classes


def one_against_rest(ranked: Ranked, logits: Tensor, labels: Tensor) -> float:
    """NaN where the samples are all of one class, or where a logit is no finite number."""
    scores, truth = logits.double().numpy(), labels.numpy()
    if not np.isfinite(scores).all():
        return math.nan
    if truth.ndim == 2:  # any number of labels per sample: each is a column
        return _mean(ranked, truth > 0, scores)
    if scores.shape[1] == 2:
        return _mean(ranked, truth[:, None] == 1, scores[:, 1:] - scores[:, :1])
    classes = np.unique(truth)
    rest = [np.logaddexp.reduce(np.delete(scores, label, axis=1), axis=1) for label in classes]
    return _mean(ranked, truth[:, None] == classes, scores[:, classes] - np.stack(rest, axis=1))


def _mean(ranked: Ranked, truth: Array, scores: Array) -> float:
    """Of [N, columns], over those that have both kinds of samples."""
    import sklearn

    both = truth.any(axis=0) & ~truth.all(axis=0)
    if not both.any():
        return math.nan
    truth, scores = truth[:, both], scores[:, both]
    # All is as scikit-learn wants it, and to look it over takes longer than to rank a client's few samples.
    with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
        return float(ranked(truth, scores) if truth.shape[1] > 1 else ranked(truth[:, 0], scores[:, 0]))
