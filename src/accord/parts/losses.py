"""Loss terms."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from accord.core.task import Part, View
from accord.core.tensors import squared_norm


def weighted_mean(values: Tensor, weight: Tensor) -> Tensor:
    """Mean over the samples that count (weight 0 is padding)."""
    return (values * weight).sum() / weight.sum()


def cross_entropy(logits: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    """Mean cross-entropy with class indices [B] or soft labels [B, C]."""
    return weighted_mean(F.cross_entropy(logits, labels, reduction="none"), weight)


@dataclass(frozen=True)
class CrossEntropy(Part):
    """The classification loss every method starts from."""

    def loss(self, view: View) -> Tensor:
        """Mean over the batch."""
        return cross_entropy(view.out.logits, view.batch.y, view.batch.weight)


@dataclass(frozen=True)
class Proximal(Part):
    """(mu / 2) |w - w_t|^2, the pull back to the received model."""

    mu: float

    def loss(self, view: View) -> Tensor | None:
        """None at mu = 0, so that it costs and changes nothing."""
        if self.mu == 0:
            return None
        received = view.job.shared["model"]
        moved = {name: p - received[name] for name, p in view.params["model"].items()}
        return 0.5 * self.mu * squared_norm(moved)
