"""The kernel of `pooled`: a window's largest number, the bias added, and ReLU of it."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 512  # numbers a program writes: neighbours are the channels of one pixel, which lie side by side


@triton.jit
def _pool_kernel(
    x, bias, out, total,
    channels, height, width, lines, places, down, right, top, left,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A NaN in the window is its maximum, as in torch."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < total
    channel, pixel = number % channels, number // channels
    line, place = pixel // places % lines * down - top, pixel % places * right - left
    x += pixel // places // lines * height * width * channels + channel
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    for i in tl.static_range(ROWS):
        for j in tl.static_range(COLUMNS):
            row, column = line + i, place + j
            seen = inside & (row >= 0) & (row < height) & (column >= 0) & (column < width)
            found = tl.load(x + (row * width + column) * channels, mask=seen, other=float("-inf")).to(tl.float32)
            largest = tl.maximum(largest, found, propagate_nan=tl.PropagateNan.ALL)
    largest += tl.load(bias + channel, mask=inside, other=0.0).to(tl.float32)
    largest = tl.maximum(largest, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + number, largest.to(out.dtype.element_ty), mask=inside)


def pool(
    x: Tensor, bias: Tensor, rows: int, columns: int, down: int, right: int, top: int, left: int
) -> Tensor:  # fmt: skip
    """As `pooled.pool`."""
    images, channels, height, width = x.shape
    lines, places = (height + 2 * top - rows) // down + 1, (width + 2 * left - columns) // right + 1
    out = x.new_empty(images, lines, places, channels).permute(0, 3, 1, 2)
    if out.numel():
        _pool_kernel[(triton.cdiv(out.numel(), BLOCK),)](
            x, bias, out, out.numel(),
            channels, height, width, lines, places, down, right, top, left,
            ROWS=rows, COLUMNS=columns, BLOCK=BLOCK,
        )  # fmt: skip
    return out
