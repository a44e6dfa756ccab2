"""Small pieces the architectures share, with checks of the settings they are given."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from accord.errors import ConfigError, nearest
from accord.settings import PROPER_FRACTION


def drop_layer(p: float, *, whole_maps: bool = False) -> nn.Module:
    """Dropout with probability `p`; an identity for 0, so that layer numbers do not depend on `p`."""
    if isinstance(p, bool) or not isinstance(p, (int, float)) or p not in PROPER_FRACTION:
        raise ConfigError(f"a dropout probability must be a number of {PROPER_FRACTION}, got {p!r}")
    if p == 0:
        return nn.Identity()
    return nn.Dropout2d(p) if whole_maps else nn.Dropout(p)


def dense(sizes: Sequence[int]) -> list[nn.Module]:
    """Fully connected layers with ReLU: `sizes[0]` inputs, `sizes[-1]` outputs."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return layers


def positive(name: str, value: int) -> int:
    """A width or count that must be 1 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")
    return value


def choice(name: str, value: str, allowed: Sequence[str]) -> str:
    """One of a few words."""
    if value not in allowed:
        raise ConfigError(f"unknown {name} {value!r}.{nearest(str(value), allowed)} Allowed: {', '.join(allowed)}.")
    return value
