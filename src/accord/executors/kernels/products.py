"""Layers of K clients at once, each with weights of its own: one batch of matrix products.

cuDNN has only slow kernels for K convolutions side by side (one grouped convolution). Unfolding the images and
multiplying is two to three times quicker for the small images of federated benchmarks. Images lie as [K, N, H, W, C],
channels last: a compiler takes the order of the dimensions for the order in memory, and would copy any other before it
multiplies.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from accord.executors.kernels import direct

MOST = 1 << 23  # numbers in one client's unfolded images; larger ones are cuDNN's strength and would take much memory
TILES = 256  # blocks of 64 x 64 weights at least, to keep all of a GPU busy with their gradient
TILE = 64
LEAST = 64  # rows in a piece of what such a gradient is summed over
WIDE = 512  # columns from which it pays to turn the other factor: matrix units want tf32 in rows they sum along
EVEN = 8  # matrix units want rows of a multiple of it

Pair = tuple[int, int]


class _Windows(torch.autograd.Function):
    """[K, N, H, W, C] -> [K, M, k k C], what each of a client's M output pixels sees, for k x k filters.

    Where that row is not even, a one follows, for the bias, and then zeros.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: Pair, padding: Pair) -> Tensor:
        ctx.shape, ctx.size, ctx.padding = x.shape, size, padding
        (rows, columns), (top, left) = size, padding
        # Settled, it is padded once and not again for each of the k k times a pixel is seen.
        seen = _settled(functional.pad(x, (0, 0, left, left, top, top)))
        seen = seen.unfold(2, rows, 1).unfold(3, columns, 1)  # [K, N, H', W', C, k, k]
        windows = seen.permute(0, 1, 2, 3, 5, 6, 4).reshape(len(x), -1, rows * columns * x.shape[4])
        missing = _missing(windows.shape[-1])
        if missing:
            windows = functional.pad(functional.pad(windows, (0, 1), value=1), (0, missing - 1))
        return _settled(windows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Every pixel gathers from the windows it was in; torch would scatter, one atomic addition each."""
        clients, images, height, width, channels = ctx.shape
        (rows, columns), (top, left) = ctx.size, ctx.padding
        down, right = height + 2 * top - rows + 1, width + 2 * left - columns + 1
        grad = grads[0][..., : rows * columns * channels]
        grad = grad.reshape(clients, images, down, right, rows, columns, channels)
        moved = [
            functional.pad(
                grad[:, :, :, :, i, j],
                (0, 0, j - left, width - right - j + left, i - top, height - down - i + top),
            )
            for i in range(rows)
            for j in range(columns)
        ]
        return reduce(add, moved), None, None


class _Multiply(torch.autograd.Function):
    """[K, M, I] x [K, O, I] -> [K, M, O] in the precision of the first; gradients come laid out as what they are of."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        rounded = weight if weight.dtype == x.dtype else _settled(weight.to(x.dtype))
        ctx.save_for_backward(x, rounded)
        ctx.dtype = weight.dtype
        return torch.bmm(x, rounded.mT)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), grad = ctx.saved_tensors, _settled(grads[0])
        grad_x = torch.bmm(grad, weight) if ctx.needs_input_grad[0] else None
        grad_weight = _outer(grad, x, ctx.dtype) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight


class _Pool(torch.autograd.Function):
    """[K, N, H, W, C] -> [K, N, H', W', C] maxima of windows; of equal ones the first has the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: Pair, stride: Pair) -> Tensor:
        (rows, columns), (height, width) = size, x.shape[2:4]
        down, right = (height - rows) // stride[0] + 1, (width - columns) // stride[1] + 1

        def seen(i: int, j: int) -> Tensor:
            return x[:, :, i : i + down * stride[0] : stride[0], j : j + right * stride[1] : stride[1]]

        largest = seen(0, 0)
        where = torch.zeros_like(largest, dtype=torch.int8)
        for number in range(1, rows * columns):
            value = seen(*divmod(number, columns))
            larger = (value > largest) | value.isnan()
            largest, where = torch.where(larger, value, largest), torch.where(larger, number, where)
        ctx.save_for_backward(_settled(where))
        ctx.size, ctx.stride, ctx.shape = size, stride, (height, width)
        return _settled(largest)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Every pixel asks the windows it is in: `stride` pixels in a row are in the same ones.

        Those of a block are `again` windows back at most; which of their pixels it is differs within the block.
        """
        (where,), grad, (rows, columns), stride = ctx.saved_tensors, grads[0], ctx.size, ctx.stride
        clients, images, down, right, channels = grad.shape
        again = [-(-size // step) for size, step in zip(ctx.size, stride, strict=True)]
        found: list[Tensor] = []
        for t in range(again[0]):
            for u in range(again[1]):
                i, j = (_numbers(step, back, where.device) for step, back in zip(stride, (t, u), strict=True))
                number = torch.where((i[:, None] < rows) & (j < columns), i[:, None] * columns + j, -1)
                shift = (0, 0, u, again[1] - 1 - u, t, again[0] - 1 - t)
                here = functional.pad(where, shift, value=-2)[:, :, :, None, :, None]
                passed = functional.pad(grad, shift)[:, :, :, None, :, None]
                found.append(torch.where(here == number.to(torch.int8).view(stride[0], 1, stride[1], 1), passed, 0))
        height, width = (down + again[0] - 1) * stride[0], (right + again[1] - 1) * stride[1]
        whole = reduce(add, found).reshape(clients, images, height, width, channels)
        return functional.pad(whole, (0, 0, 0, ctx.shape[1] - width, 0, ctx.shape[0] - height)), None, None


def _numbers(step: int, back: int, device: torch.device) -> Tensor:
    """Of a window that many back, the row (or column) that each of `step` pixels is."""
    return torch.arange(step, device=device) + step * back


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """K linear layers in the precision of `x`: [K, M, I], [K, O, I] and [K, O] to [K, M, O]."""
    out: Tensor = _Multiply.apply(x, weight)  # type: ignore[no-untyped-call]
    return out if bias is None else out + bias[:, None].to(x.dtype)


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, padding: Pair, stride: int = 1) -> Tensor:
    """K convolutions in the precision of `x`: [K, N, H, W, C], [K, O, C, k, k] and [K, O] to [K, N, H', W', O]."""
    clients, outputs, _, rows, columns = weight.shape
    if stride > 1 or x[0].numel() * rows * columns > MOST:
        if not (direct.suits(x, weight[0]) and direct.countable(x, weight, padding)):
            return _one_by_one(x, weight, bias, padding, stride)
        out = direct.convolve(x, weight, *padding, stride)
        return out if bias is None else out + bias[:, None, None, None].to(x.dtype)
    matrix = weight.permute(0, 1, 3, 4, 2).reshape(clients, outputs, -1)
    missing = _missing(matrix.shape[-1])
    if missing:
        column = matrix.new_zeros(clients, outputs) if bias is None else bias
        matrix, bias = functional.pad(torch.cat([matrix, column[..., None]], -1), (0, missing - 1)), None
    windows: Tensor = _Windows.apply(x, (rows, columns), padding)  # type: ignore[no-untyped-call]
    down, right = x.shape[2] + 2 * padding[0] - rows + 1, x.shape[3] + 2 * padding[1] - columns + 1
    return multiply(windows, matrix, bias).view(clients, -1, down, right, outputs)


def pool(x: Tensor, size: Pair, stride: Pair) -> Tensor:
    """Maxima of windows, as `max_pool2d` finds them, to the last bit."""
    out: Tensor = _Pool.apply(x, size, stride)  # type: ignore[no-untyped-call]
    return out


def _one_by_one(x: Tensor, weight: Tensor, bias: Tensor | None, padding: Pair, stride: int) -> Tensor:
    biases = [None] * len(x) if bias is None else list(bias.to(x.dtype))
    layers = zip(x.permute(0, 1, 4, 2, 3), weight.to(x.dtype), biases, strict=True)
    return torch.stack([functional.conv2d(*layer, stride=stride, padding=padding) for layer in layers]).permute(
        0, 1, 3, 4, 2
    )


def _settled(tensor: Tensor) -> Tensor:
    """The same tensor, in memory and in the order of its dimensions; a compiler might compute it again for every use.

    `as_strided` tells it so: it wants to know where everything lies.
    """
    tensor = tensor.contiguous()
    return tensor.as_strided(tensor.shape, tensor.stride())


def _missing(columns: int) -> int:
    return -columns % EVEN


def _outer(grad: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    """[K, M, O] and [K, M, I] to [K, O, I], summed over M."""
    (clients, rows, outputs), inputs = grad.shape, x.shape[-1]
    if x.dtype == torch.float32 and inputs >= WIDE and not _missing(rows):
        return torch.bmm(_settled(grad.mT), x).to(dtype)
    pieces = _pieces(rows, clients, outputs, inputs)
    if pieces == 1:
        return torch.bmm(grad.mT, x).to(dtype)
    grad, x = (t.reshape(clients * pieces, -1, t.shape[-1]) for t in (grad, x))
    return torch.bmm(grad.mT, x).view(clients, pieces, outputs, inputs).sum(1, dtype=dtype)


def _pieces(rows: int, clients: int, outputs: int, inputs: int) -> int:
    """Into how many a client's rows are divided, so that there is work for all of a GPU."""
    blocks = clients * -(-outputs // TILE) * -(-inputs // TILE)
    allowed = [n for n in range(1, max(rows // LEAST, 1) + 1) if rows % n == 0]
    return next((n for n in allowed if n * blocks >= TILES), allowed[-1])
