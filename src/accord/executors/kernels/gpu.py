"""Layers as a GPU likes them: those of a stack of clients, and a row of layers at once where no gradient is asked for.

A convolution that is pooled, then ReLU: the bias is added to, and ReLU taken of, the pooled pixels alone. Both keep the
order of numbers, so that gives the same to the last bit. One kernel does it, see `accord.executors.kernels.pooled`.
The convolution before it sums in another order than torch's layers would, so this is done only within `rows_at_once`:
there are methods to which another rounding of one feature is another feature.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import cast

import torch
from torch import Tensor, nn

from accord.core.tensors import is_stacked
from accord.executors.kernels import pooled
from accord.executors.kernels.layers import channels_last, exchanged, pair
from accord.executors.kernels.stacked import LAYERS, StackableConv2d, StackableMaxPool2d, StackableReLU

ROW = (StackableConv2d, StackableMaxPool2d, StackableReLU)
_wanted: ContextVar[bool] = ContextVar("rows_at_once", default=False)


@contextmanager
def rows_at_once(wanted: bool = True) -> Iterator[None]:
    """Such rows of layers may be one in the meantime."""
    before = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(before)


class GPUSequential(nn.Sequential):
    """`nn.Sequential`; a convolution goes with its pooling and ReLU where a frozen model is asked."""

    def forward(self, x: Tensor) -> Tensor:
        """Of whatever its layers are for."""
        layers = list(self)
        while layers:
            if _at_once(x, layers[: len(ROW)]):
                x = _pooled(x, layers[0], layers[1])
                layers = layers[len(ROW) :]
            else:
                x = layers.pop(0)(x)
        return x


def gpu_layers(network: nn.Module) -> nn.Module:
    """The network with those layers exchanged, in place."""
    return exchanged(network, {**LAYERS, nn.Sequential: GPUSequential})


def _at_once(x: Tensor, layers: Sequence[nn.Module]) -> bool:
    """Whether it is such a row, with no more to its layers than their settings, and nobody asks for gradients."""
    if not _wanted.get() or tuple(map(type, layers)) != ROW or torch.is_grad_enabled() or not pooled.suits(x):
        return False
    convolution, pool = cast(nn.Conv2d, layers[0]), cast(nn.MaxPool2d, layers[1])
    alone = convolution.bias is not None and not (is_stacked(x) or is_stacked(convolution.weight))
    plain = pair(pool.dilation) == (1, 1) and not (pool.ceil_mode or pool.return_indices)
    watched = any(layer._forward_hooks or layer._forward_pre_hooks for layer in layers)
    return alone and plain and not watched


def _pooled(x: Tensor, convolution: nn.Module, pool: nn.Module) -> Tensor:
    layer, window = cast(nn.Conv2d, convolution), cast(nn.MaxPool2d, pool)
    seen = channels_last(layer._conv_forward(channels_last(x), layer.weight, None))
    bias = cast(Tensor, layer.bias).to(seen.dtype)
    sizes = pair(window.kernel_size), pair(window.stride), pair(window.padding)
    found: Tensor = pooled.pool(seen, bias, *(number for size in sizes for number in size))
    return found
