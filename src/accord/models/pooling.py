"""Max pooling for models that are only asked: the same numbers, many times faster on a CPU.

Torch's CPU kernel also finds out where each maximum was, one number after the other; for a frozen model nobody asks.
The larger of two slices of the whole tensor is vectorised.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional


class FrozenMaxPool2d(nn.MaxPool2d):
    """`nn.MaxPool2d` to the last bit; takes the quick way on a CPU where no gradient is wanted."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., C, H, W] maxima."""
        (rows, columns), strides, (top, left) = _pair(self.kernel_size), _pair(self.stride), _pair(self.padding)
        fits = x.shape[-2] + 2 * top >= rows and x.shape[-1] + 2 * left >= columns
        plain = _pair(self.dilation) == (1, 1) and not (self.ceil_mode or self.return_indices)
        wanted = torch.is_grad_enabled() and x.requires_grad
        if x.device.type != "cpu" or wanted or not (plain and fits and x.is_floating_point()):
            pooled: Tensor = super().forward(x)
            return pooled
        if top or left:
            x = functional.pad(x, (left, left, top, top), value=-torch.inf)
        return _largest(_largest(x, -2, rows, strides[0]), -1, columns, strides[1])


def _largest(x: Tensor, dim: int, kernel: int, stride: int) -> Tensor:
    """Maxima along one dimension: of all windows' first values, second values, ..., each a slice of `x`."""
    return reduce(torch.maximum, x.unfold(dim, kernel, stride).unbind(-1))


def _pair(size: int | tuple[int, ...]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def with_frozen_pools(network: nn.Module) -> nn.Module:
    """The network with its max-pooling layers replaced, in place; parameters and names stay the same."""
    for parent in network.modules():
        for name, child in parent.named_children():
            if type(child) is nn.MaxPool2d:
                settings = (child.kernel_size, child.stride, child.padding, child.dilation)
                quick = FrozenMaxPool2d(*settings, return_indices=child.return_indices, ceil_mode=child.ceil_mode)
                setattr(parent, name, quick.train(child.training))
    return network
