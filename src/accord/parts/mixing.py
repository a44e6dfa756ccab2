"""Batches whose samples are mixed with one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from accord.core.algorithm import Setup
from accord.core.model import Model
from accord.core.task import Corner, Part
from accord.core.types import Batch, Job
from accord.errors import DataError
from accord.parts.bounds import within
from accord.settings import NOT_NEGATIVE, Search

Alpha = Annotated[
    float, NOT_NEGATIVE, Search(choices=(0.1, 0.2, 0.4, 1.0)), "lambda ~ Beta(alpha, alpha); 0 mixes nothing"
]


def soft_labels(labels: Tensor, num_classes: int, like: Tensor) -> Tensor:
    """[B, C] labels as shares: one-hot from class indices, unchanged if they are shares already."""
    if labels.dim() == 2:
        return labels
    # `one_hot` looks at the labels' values first.
    return (labels.unsqueeze(1) == torch.arange(num_classes, device=labels.device)).to(like.dtype)


@dataclass(frozen=True)
class Mixup(Part):
    """x~ = l x_i + (1 - l) x_j, y~ = l y_i + (1 - l) y_j: one l per batch, j a permutation of the batch.

    Cross-entropy is linear in the label, so soft labels give exactly l CE(y_i) + (1 - l) CE(y_j), and every
    other loss that reads labels sees the same mixture.
    """

    alpha: float = 0.2

    def __post_init__(self) -> None:
        within(NOT_NEGATIVE, alpha=self.alpha)

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """l per step, and a number per sample: sorting them gives a permutation of any length."""
        if self.alpha == 0:
            return {}
        return {
            "mixup.share": rng.beta(self.alpha, self.alpha, steps),
            "mixup.order": rng.random((steps, batch)),
        }

    def begin(self, model: Model, job: Job) -> Corner:
        """Refuses inputs that have no mean."""
        if self.alpha and not job.data.x.is_floating_point():
            raise DataError(f"mixup needs inputs that are real numbers, these are {job.data.x.dtype}")
        return {}

    def batch(self, job: Job, corner: Corner, batch: Batch) -> Batch:
        """The mixed batch; its rows are no stored samples any more, which the empty index says."""
        if self.alpha == 0:
            return batch
        share = batch.noise["mixup.share"].to(batch.x.dtype)
        # Padding (weight 0) is sorted behind the samples, so that samples are only mixed with samples.
        keys = batch.noise["mixup.order"][: len(batch.x)] + 2 * (1 - batch.weight)
        order = keys.argsort(stable=True)
        labels = soft_labels(batch.y, job.data.num_classes, batch.x)
        return batch._replace(
            x=share * batch.x + (1 - share) * batch.x.index_select(0, order),
            y=share * labels + (1 - share) * labels.index_select(0, order),
            index=batch.index[:0],
        )


def mixup(setup: Setup, *, alpha: Alpha = 0.2) -> Mixup:
    """The part by its settings."""
    return Mixup(alpha)
