"""Layers as a CPU likes them: the same function and the same parameters, in another layout.

Torch's max pooling finds its maxima one number after the other unless channels lie last. oneDNN's convolutions of a few
channels want them last too, all others want each channel's pixels together.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from accord.executors.kernels.layers import channels_last, exchanged, pair

FEW = 16  # input channels of a convolution that is quicker with channels last


class CPUConv2d(nn.Conv2d):
    """`nn.Conv2d` up to rounding; decides for itself how its images lie in memory."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, O, H', W']."""
        if self.in_channels > FEW or x.dim() != 4:
            return super().forward(x.contiguous())
        out: Tensor = self._conv_forward(channels_last(x), channels_last(self.weight), self.bias)
        return out


class _Pool(torch.autograd.Function):
    """Pools with channels last; gives each channel's pixels together, and a gradient laid out as the images were.

    Left to themselves, torch's layers on either side would turn or gather them one number after the other.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, *settings: Any) -> Tensor:
        pooled, where = torch.ops.aten.max_pool2d_with_indices(channels_last(x), *settings)
        ctx.save_for_backward(x, where)
        ctx.settings = settings
        together: Tensor = pooled.contiguous()
        return together

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, where = ctx.saved_tensors
        shape = torch.empty_like(x, memory_format=torch.channels_last)  # torch reads no more of it
        grad = torch.ops.aten.max_pool2d_with_indices_backward(channels_last(grads[0]), shape, *ctx.settings, where)
        return (grad.contiguous() if x.is_contiguous() else grad), *[None] * len(ctx.settings)


class CPUMaxPool2d(nn.MaxPool2d):
    """`nn.MaxPool2d` to the last bit."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., C, H', W'] maxima."""
        size, strides, (top, left) = pair(self.kernel_size), pair(self.stride), pair(self.padding)
        fits = x.shape[-2] + 2 * top >= size[0] and x.shape[-1] + 2 * left >= size[1]
        plain = pair(self.dilation) == (1, 1) and not (self.ceil_mode or self.return_indices)
        pooled: Tensor
        if not (plain and fits and x.dim() == 4 and x.is_floating_point()):
            pooled = super().forward(x)
        elif torch.is_grad_enabled() and x.requires_grad:
            pooled = _Pool.apply(x, size, strides, (top, left), (1, 1), False)  # type: ignore[no-untyped-call]
        else:  # nobody asks where the maxima were: the larger of two slices of the whole tensor is vectorised
            if top or left:
                x = functional.pad(x, (left, left, top, top), value=-torch.inf)
            pooled = _largest(_largest(x, -2, size[0], strides[0]), -1, size[1], strides[1])
        return pooled


LAYERS: dict[type[nn.Module], type[nn.Module]] = {nn.Conv2d: CPUConv2d, nn.MaxPool2d: CPUMaxPool2d}


def cpu_layers(network: nn.Module) -> nn.Module:
    """The network with those layers exchanged, in place."""
    return exchanged(network, LAYERS)


def _largest(x: Tensor, dim: int, kernel: int, stride: int) -> Tensor:
    """Maxima along one dimension: of all windows' first values, second values, ..., each a slice of `x`."""
    return reduce(torch.maximum, x.unfold(dim, kernel, stride).unbind(-1))
