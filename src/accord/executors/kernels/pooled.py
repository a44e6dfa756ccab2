"""ReLU of pooled images plus a bias, [N, C, H, W] with channels last, of which nobody will ask for a gradient.

One kernel reads every pixel once. Torch's layers would write the images with the bias added, read them again, and note
where each maximum was. On a CPU the operator is torch's own, so that all around the kernel is tested without a GPU.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional

PRECISIONS = (torch.float32, torch.bfloat16)


def suits(x: Tensor) -> bool:
    """Whether the kernel is for these images, before the convolution, and where they are."""
    return x.is_cuda and x.dim() == 4 and x.dtype in PRECISIONS and find_spec("triton") is not None


@torch.library.custom_op("accord::pool", mutates_args=())
def pool(
    x: Tensor, bias: Tensor, rows: int, columns: int, down: int, right: int, top: int, left: int
) -> Tensor:  # fmt: skip
    """Windows of `rows` x `columns` pixels, `down` and `right` apart, with `top` and `left` pixels around the images.

    [N, C, H', W'] with channels last, in the precision of the images, which is the bias's too.
    """
    found = functional.max_pool2d(x, (rows, columns), (down, right), (top, left))
    return torch.relu(found + bias[:, None, None]).contiguous(memory_format=torch.channels_last)


@pool.register_fake
def _(x: Tensor, bias: Tensor, rows: int, columns: int, down: int, right: int, top: int, left: int) -> Tensor:
    size = (x.shape[2] + 2 * top - rows) // down + 1, (x.shape[3] + 2 * left - columns) // right + 1
    return x.new_empty(*x.shape[:2], *size).contiguous(memory_format=torch.channels_last)


@pool.register_kernel("cuda")
def _(x: Tensor, bias: Tensor, rows: int, columns: int, down: int, right: int, top: int, left: int) -> Tensor:
    from accord.executors.kernels import maxima

    return maxima.pool(x, bias, rows, columns, down, right, top, left)
