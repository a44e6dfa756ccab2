"""Convolutions of K clients at once, each with filters of its own, without unfolding what they see.

Unfolded, an image with many channels is written and read once for every pixel of the filter; cuDNN would take one
client after another. Here one kernel reads the images where they lie and multiplies tile by tile. On a CPU the same
operators are torch's own convolutions, so that all around the kernels is tested without a GPU.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_weight

LEAST = 16  # channels: fewer do not fill a matrix unit
MOST = 1 << 30  # numbers of a client's images, padded: the kernels count them with 32 bits


def convolve(x: Tensor, weight: Tensor, top: int, left: int, stride: int) -> Tensor:
    """[K, N, H, W, C] and [K, O, C, k, k] -> [K, N, H', W', O], in the precision of the images."""
    out: Tensor = _Direct.apply(x, weight, top, left, stride)  # type: ignore[no-untyped-call]
    return out


def suits(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernels are for this place, precision and size; `weight` is one client's, [O, C, k, k]."""
    rounded = x.dtype == torch.bfloat16 or (x.dtype == torch.float32 and torch.backends.cudnn.allow_tf32)
    return x.is_cuda and rounded and min(weight.shape[:2]) >= LEAST and find_spec("triton") is not None


def countable(x: Tensor, weight: Tensor, padding: tuple[int, int]) -> bool:
    """Whether no client's images, [N, H, W, C], are too many for the kernels, before or after the layer."""
    images, height, width, _ = x.shape[1:]
    pixels = images * (height + 2 * padding[0]) * (width + 2 * padding[1])
    return pixels * max(weight.shape[1:3]) <= MOST


class _Direct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, top: int, left: int, stride: int) -> Tensor:
        ctx.given, ctx.dtype = (top, left, stride), weight.dtype
        x, filters = x.contiguous(), weight.to(x.dtype).permute(0, 1, 3, 4, 2).contiguous()
        ctx.save_for_backward(x, filters)
        _, _, height, width, _ = x.shape
        _, _, rows, columns, _ = filters.shape
        down, right = (height + 2 * top - rows) // stride + 1, (width + 2 * left - columns) // stride + 1
        found: Tensor = images(x, filters, top, left, stride, 1, down, right)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """An image's gradient is a convolution too: of the output's, spread out, with the filters turned around."""
        (x, filters), (top, left, stride), grad = ctx.saved_tensors, ctx.given, grads[0].contiguous()
        _, _, height, width, _ = x.shape
        _, _, rows, columns, _ = filters.shape
        grad_x = grad_filters = None
        if ctx.needs_input_grad[0]:
            turned = filters.flip(2, 3).permute(0, 4, 2, 3, 1).contiguous()
            grad_x = images(grad, turned, rows - 1 - top, columns - 1 - left, 1, stride, height, width)
        if ctx.needs_input_grad[1]:
            grad_filters = filters_gradient(x, grad, rows, columns, top, left, stride).to(ctx.dtype)
        return grad_x, grad_filters, None, None, None


@torch.library.custom_op("accord::convolve", mutates_args=())
def images(x: Tensor, filters: Tensor, top: int, left: int, stride: int, spread: int, down: int, right: int) -> Tensor:
    """`down` x `right` pixels; the first sees from (-top, -left) on, the next `stride` further.

    The images' pixels lie `spread` apart, with zeros between and around them.
    """
    clients, number, height, width, channels = x.shape
    _, _, rows, columns, _ = filters.shape
    apart = x.new_zeros(clients, number, (height - 1) * spread + 1, (width - 1) * spread + 1, channels)
    apart[:, :, ::spread, ::spread] = x
    below = (down - 1) * stride + rows - top - apart.shape[2]
    beside = (right - 1) * stride + columns - left - apart.shape[3]
    apart = functional.pad(apart, (0, 0, left, beside, top, below))
    layers = zip(apart.permute(0, 1, 4, 2, 3), filters.permute(0, 1, 4, 2, 3), strict=True)
    found = torch.stack([functional.conv2d(*layer, stride=stride) for layer in layers])
    return found.permute(0, 1, 3, 4, 2).contiguous()


@images.register_fake
def _(x: Tensor, filters: Tensor, top: int, left: int, stride: int, spread: int, down: int, right: int) -> Tensor:
    return x.new_empty(*x.shape[:2], down, right, filters.shape[1])


@images.register_kernel("cuda")
def _(x: Tensor, filters: Tensor, top: int, left: int, stride: int, spread: int, down: int, right: int) -> Tensor:
    from accord.executors.kernels import tiles

    return tiles.images(x, filters, top, left, stride, spread, down, right)


@torch.library.custom_op("accord::convolve_gradient", mutates_args=())
def filters_gradient(x: Tensor, grad: Tensor, rows: int, columns: int, top: int, left: int, stride: int) -> Tensor:
    """[K, N, H, W, C] and [K, N, H', W', O] -> [K, O, C, k, k], in single precision at least."""
    size = grad.shape[4], x.shape[4], rows, columns
    layers = zip(x.permute(0, 1, 4, 2, 3), grad.permute(0, 1, 4, 2, 3), strict=True)
    slope: Any = conv2d_weight
    found = torch.stack([slope(one, size, out, stride, (top, left)) for one, out in layers])
    return found.to(_wide(x)).contiguous()


@filters_gradient.register_fake
def _(x: Tensor, grad: Tensor, rows: int, columns: int, top: int, left: int, stride: int) -> Tensor:
    return x.new_empty(len(x), grad.shape[4], x.shape[4], rows, columns, dtype=_wide(x))


@filters_gradient.register_kernel("cuda")
def _(x: Tensor, grad: Tensor, rows: int, columns: int, top: int, left: int, stride: int) -> Tensor:
    from accord.executors.kernels import tiles

    return tiles.filters(x, grad, rows, columns, top, left, stride)


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
