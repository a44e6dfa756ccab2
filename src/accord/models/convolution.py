"""Convolutions whose weight gradient is one matrix product.

For the small images of federated benchmarks cuDNN's single-precision kernel for it can take longer than the rest of
the backward pass. Unfolding the input, which a compiler fuses into one kernel, and multiplying is quicker there; in
bf16 it is not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

MOST = 1 << 23  # numbers in an unfolded input; larger images are cuDNN's strength and would take much memory


class _Convolve(torch.autograd.Function):
    """`conv2d` with stride 1; O filters of k x k over C channels, N images, M = N x out-height x out-width."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.padding = padding
        return functional.conv2d(x, weight, bias, padding=padding)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        (grad,), (top, left) = grads, ctx.padding
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            only = [True, False, False]
            grad_x = torch.ops.aten.convolution_backward(
                grad, x, weight, None, [1, 1], [top, left], [1, 1], False, [0, 0], 1, only
            )[0]
        flat = grad.permute(0, 2, 3, 1).reshape(-1, weight.shape[0])  # [M, O]
        if ctx.needs_input_grad[1]:
            windows = _windows(x, weight.shape[-2], weight.shape[-1], top, left)
            grad_weight = (flat.t() @ windows).view(weight.shape[0], *weight.shape[2:], -1).permute(0, 3, 1, 2)
        if ctx.needs_input_grad[2]:
            grad_bias = flat.sum(0)
        return grad_x, grad_weight, grad_bias, None


def _windows(x: Tensor, rows: int, columns: int, top: int, left: int) -> Tensor:
    """[M, k k C] what every output pixel sees."""
    x = functional.pad(x.permute(0, 2, 3, 1), (0, 0, left, left, top, top))
    seen = x.unfold(1, rows, 1).unfold(2, columns, 1)  # [N, H, W, C, k, k]
    return seen.permute(0, 1, 2, 4, 5, 3).reshape(-1, rows * columns * x.shape[-1])


class ProductConv2d(nn.Conv2d):
    """`nn.Conv2d` up to rounding; its parameters are named the same."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, O, H', W']."""
        if x.numel() * self.kernel_size[0] * self.kernel_size[1] > MOST:
            plain: Tensor = super().forward(x)
            return plain
        padding = (int(self.padding[0]), int(self.padding[1]))
        out: Tensor = _Convolve.apply(x, self.weight, self.bias, padding)  # type: ignore[no-untyped-call]
        return out


def with_products(network: nn.Module) -> nn.Module:
    """The network with its ordinary convolutions changed, in place; others stay as they are."""
    for module in network.modules():
        if type(module) is nn.Conv2d and _ordinary(module):
            module.__class__ = ProductConv2d  # it has no more to it than a forward of its own
    return network


def _ordinary(layer: nn.Conv2d) -> bool:
    plain = layer.stride == layer.dilation == (1, 1) and layer.groups == 1
    return plain and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
