"""Whether a model is as often right as it is sure.

Guo et al. 2017, "On Calibration of Modern Neural Networks", arXiv 1706.04599, equation 3.
"""

from __future__ import annotations

import torch
from torch import Tensor

from accord.measures.metric import metric

BINS = 15


def bins_of(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[N] how sure a model is of each sample, the class it names, and the bin of its confidence."""
    confidence, predicted = logits.double().softmax(1).max(1)
    edges = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)
    return confidence, predicted, torch.bucketize(confidence, edges[1:-1])  # the number of inner edges below it


@metric(
    "ece",
    title="ECE",
    better="lower",
    percent=True,
    problems=("classification",),
    doc="expected calibration error: 15 bins of equal width on the confidence",
)
def ece(logits: Tensor, labels: Tensor) -> float:
    """The mean over samples of |accuracy - confidence| of their bin; confidence is the largest probability.

    Bin b holds confidences in (b / 15, (b + 1) / 15].
    """
    confidence, predicted, place = bins_of(logits)
    gap = torch.zeros(BINS, dtype=torch.float64)
    gap.index_add_(0, place, (predicted == labels).double() - confidence)
    return float(gap.abs().sum() / len(labels))
