"""Layers exchanged for others that compute the same."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


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


def channels_last(x: Tensor) -> Tensor:
    """Images that lie so, and that torch takes for such."""
    if x.shape[1] == 1:  # lies either way, and torch would take it for the other
        return x.contiguous()[:, 0, :, :, None].movedim(-1, 1)
    return x.contiguous(memory_format=torch.channels_last)
