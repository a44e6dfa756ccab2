"""Small pieces the architectures share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn


def drop_layer(p: float, *, whole_maps: bool = False) -> nn.Module:
    """Dropout with probability `p`; an identity for 0, so that layer numbers do not depend on `p`."""
    if p == 0:
        return nn.Identity()
    return nn.Dropout2d(p) if whole_maps else nn.Dropout(p)


def dense(sizes: Sequence[int]) -> list[nn.Module]:
    """Fully connected layers with ReLU: `sizes[0]` inputs, `sizes[-1]` outputs."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return layers
