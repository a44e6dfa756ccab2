"""Samples of a batch or a set: their labels as shares, and picks of them from uniform draws."""

from __future__ import annotations

import torch
from torch import Tensor


def soft_labels(labels: Tensor, num_classes: int, like: Tensor) -> Tensor:
    """[B, C] labels as shares: one-hot from class indices, unchanged if they are shares already."""
    if labels.dim() == 2:
        return labels
    # `one_hot` looks at the labels' values first.
    return (labels.unsqueeze(1) == torch.arange(num_classes, device=labels.device)).to(like.dtype)


def share_of(draws: Tensor, count: int | Tensor) -> Tensor:
    """Positions 0..count - 1 from uniform draws in [0, 1), which may have been rounded up to 1."""
    positions = (draws * count).long()
    return positions.clamp(max=count - 1) if isinstance(count, int) else positions.minimum(count.long() - 1)
