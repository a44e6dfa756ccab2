"""Layers exchanged for others that compute the same."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn


def exchanged(network: nn.Module, kinds: Mapping[type[nn.Module], type[nn.Module]]) -> nn.Module:
    """The network with layers of these very kinds changed, in place; parameters, names and settings stay.

    The new kinds must have no more to them than a forward of their own.
    """
    for module in network.modules():
        module.__class__ = kinds.get(type(module), type(module))
    return network


def pair(size: int | tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a layer's setting."""
    return (size, size) if isinstance(size, int) else (size[0], size[1])
