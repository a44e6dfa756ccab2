"""The kernels of `direct`: tiles of outputs, each summed over the pixels and channels its filters see.

Tensors are contiguous, channels last, of one type: bf16, or fp32 that is rounded to tf32 where it is multiplied.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS = 1024  # at least, so that no part of a GPU is idle
FEWEST = 8  # tiles in a piece of the sum of a gradient


class Tile(NamedTuple):
    """What a program works on at a time: pixels, filters, channels."""

    M: int
    N: int
    C: int
    warps: int
    stages: int


@triton.jit
def _images_kernel(
    x, filters, out,
    height, width, down, right, pixels, outputs, top, left,
    STRIDE: tl.constexpr, SPREAD: tl.constexpr,
    CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """M output pixels (of all images of a client) by N filters, over pieces of C channels of a filter's pixels."""
    client = tl.program_id(2).to(tl.int64)
    images = pixels // (down * right)
    x += client * images * height * width * CHANNELS
    filters += client * outputs * ROWS * COLUMNS * CHANNELS
    out += client * pixels * outputs
    pixel = tl.program_id(0) * M + tl.arange(0, M)
    output = tl.program_id(1) * N + tl.arange(0, N)
    image, line, place = pixel // (down * right), pixel // right % down * STRIDE - top, pixel % right * STRIDE - left
    PIECES: tl.constexpr = (CHANNELS + C - 1) // C
    total = tl.zeros((M, N), tl.float32)
    for step in range(ROWS * COLUMNS * PIECES):
        tap, channel = step // PIECES, step % PIECES * C + tl.arange(0, C)
        down_to, right_to = line + tap // COLUMNS, place + tap % COLUMNS
        seen = (pixel < pixels) & (down_to >= 0) & (right_to >= 0)
        if SPREAD > 1:
            seen = seen & (down_to % SPREAD == 0) & (right_to % SPREAD == 0)
            down_to, right_to = down_to // SPREAD, right_to // SPREAD
        seen = seen & (down_to < height) & (right_to < width)
        where = ((image * height + down_to) * width + right_to) * CHANNELS
        a = tl.load(
            x + where[:, None] + channel[None, :], mask=seen[:, None] & (channel < CHANNELS)[None, :], other=0.0
        )
        row = output * (ROWS * COLUMNS * CHANNELS) + tap * CHANNELS
        b = tl.load(
            filters + row[None, :] + channel[:, None],
            mask=(output < outputs)[None, :] & (channel < CHANNELS)[:, None],
            other=0.0,
        )
        total = tl.dot(a, b, total, input_precision="tf32")
    where = out + pixel[:, None] * outputs + output[None, :]
    tl.store(where, total.to(out.dtype.element_ty), mask=(pixel < pixels)[:, None] & (output < outputs)[None, :])


@triton.jit
def _filters_kernel(
    x, grad, out,
    outputs, width, given, total,
    PIECE: tl.constexpr, STRIDE: tl.constexpr,
    CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """N filters by C of their numbers, summed over a piece of a client's pixels, M at a time.

    A number of a filter sees the images shifted, so what it is multiplied with begins elsewhere in the same row.
    """
    TAPS: tl.constexpr = ROWS * COLUMNS
    pieces = total // PIECE
    client, piece = (tl.program_id(2) // pieces).to(tl.int64), tl.program_id(2) % pieces
    x += client * CHANNELS * STRIDE * STRIDE * given
    grad += client * outputs * total
    out += (client * pieces + piece) * outputs * CHANNELS * TAPS
    output = tl.program_id(0) * N + tl.arange(0, N)
    number = tl.program_id(1) * C + tl.arange(0, C)
    known = tl.minimum(number, CHANNELS * TAPS - 1)
    i, j = known % TAPS // COLUMNS, known % COLUMNS
    plane = known // TAPS * STRIDE * STRIDE + i % STRIDE * STRIDE + j % STRIDE
    row = plane * given + i // STRIDE * width + j // STRIDE
    line = tl.minimum(output, outputs - 1) * total
    found = tl.zeros((N, C), tl.float32)
    for first in range(0, PIECE, M):
        pixel = piece * PIECE + first + tl.arange(0, M)
        a = tl.load(grad + line[:, None] + pixel[None, :])
        b = tl.load(x + row[:, None] + pixel[None, :])
        found = tl.dot(a, tl.trans(b), found, input_precision="tf32")
    where = out + output[:, None] * (CHANNELS * TAPS) + number[None, :]
    tl.store(where, found, mask=(output < outputs)[:, None] & (number < CHANNELS * TAPS)[None, :])


def images(
    x: Tensor, filters: Tensor, top: int, left: int, stride: int, spread: int, down: int, right: int
) -> Tensor:  # fmt: skip
    """As `direct.images`."""
    clients, number, height, width, channels = x.shape
    _, outputs, rows, columns, _ = filters.shape
    out = x.new_empty(clients, number, down, right, outputs)
    pixels = number * down * right
    tile = Tile(128, _size(outputs, 128), _size(channels, 32 if x.dtype == torch.float32 else 64), 8, 3)
    grid = (triton.cdiv(pixels, tile.M), triton.cdiv(outputs, tile.N), clients)
    _images_kernel[grid](
        x, filters, out,
        height, width, down, right, pixels, outputs, top, left,
        STRIDE=stride, SPREAD=spread, CHANNELS=channels, ROWS=rows, COLUMNS=columns,
        M=tile.M, N=tile.N, C=tile.C, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out


def filters(x: Tensor, grad: Tensor, rows: int, columns: int, top: int, left: int, stride: int) -> Tensor:
    """As `direct.filters_gradient`; summed in fp32, always in the same order.

    Matrix units want tf32 in rows they sum along: of each channel all pixels in a row, images padded. The gradient lies
    in the same grid, zero where the padded images have more, so that what a number of a filter sees is the row from a
    later pixel on. Of a stride, the pixels of equal remainder make a row of their own.
    """
    clients, images, _, _, channels = x.shape
    down, right, outputs = grad.shape[2:]
    high, wide = (size - 1 - -step // stride for size, step in ((down, rows), (right, columns)))
    pixels, slack = images * high * wide, (rows // stride) * wide + columns
    tile = Tile(32 if x.dtype == torch.float32 else 64, _size(outputs, 64), 128, 4, 3)
    across, along = triton.cdiv(outputs, tile.N), triton.cdiv(rows * columns * channels, tile.C)
    pieces = max(min(PROGRAMS // (across * along * clients), pixels // (FEWEST * tile.M)), 1)
    piece = tile.M * triton.cdiv(pixels, pieces * tile.M)
    total = pieces * piece
    given = 16 * triton.cdiv(total + slack, 16)
    lined = x.new_zeros(clients, channels, stride, stride, given)
    planes = lined[..., :pixels].view(clients, channels, stride, stride, images, high, wide)
    for line, column in product(range(stride), repeat=2):
        first, second = (line - top) % stride, (column - left) % stride
        part = x[:, :, first::stride, second::stride].permute(0, 4, 1, 2, 3)
        place = planes[:, :, line, column, :, (first + top) // stride :, (second + left) // stride :]
        common = min(part.shape[3], place.shape[3]), min(part.shape[4], place.shape[4])
        place[..., : common[0], : common[1]] = part[..., : common[0], : common[1]]
    spread = grad.new_zeros(clients, outputs, total)
    spread[..., :pixels].view(clients, outputs, images, high, wide)[..., :down, :right] = grad.permute(0, 4, 1, 2, 3)
    out = torch.empty(clients, pieces, outputs, channels, rows, columns, device=x.device, dtype=torch.float32)
    _filters_kernel[across, along, clients * pieces](
        lined, spread, out,
        outputs, wide, given, total,
        PIECE=piece, STRIDE=stride, CHANNELS=channels, ROWS=rows, COLUMNS=columns,
        M=tile.M, N=tile.N, C=tile.C, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out[:, 0] if pieces == 1 else out.sum(1)


def _size(size: int, most: int) -> int:
    return min(max(1 << (size - 1).bit_length(), 16), most)
