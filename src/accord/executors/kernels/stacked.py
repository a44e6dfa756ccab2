"""Layers that know what to do under `torch.vmap`, where every client has weights of its own.

Without it they are the ordinary ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from accord.core.tensors import is_stacked
from accord.executors.kernels.direct import suits
from accord.executors.kernels.layers import exchanged, pair
from accord.executors.kernels.products import convolve, multiply, pool

Work = Callable[..., Tensor]


class _Stacked(torch.autograd.Function):
    """A layer under `torch.vmap`: hands the stack of clients, [K, ...], to `work`."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor | None, bias: Tensor | None, work: Work) -> Tensor:
        raise AssertionError("torch calls `vmap` instead: layers come here only under torch.vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing to keep: what `work` does is differentiated instead."""

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, weight: Tensor | None, bias: Tensor | None, work: Work
    ) -> tuple[Tensor, int]:
        def stacked(tensor: Tensor | None, dim: int | None) -> Tensor | None:
            if tensor is None:
                return None
            return tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)

        given = [stacked(t, dim) for t, dim in zip((x, weight, bias), in_dims, strict=False)]
        return work(*(t for t in given if t is not None)), 0


def _together(work: Work, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    out: Tensor = _Stacked.apply(x, weight, bias, work)  # type: ignore[no-untyped-call]
    return out


def _on_images(work: Work) -> Work:
    """`work` on [K, N, H, W, C], for layers on [N, C, H, W]."""
    return lambda x, *more: work(x.permute(0, 1, 3, 4, 2), *more).permute(0, 1, 4, 2, 3)


def _precision(x: Tensor, weight: Tensor) -> torch.dtype:
    """That of the products: autocast does not reach what is done under `torch.vmap`."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


class StackableConv2d(nn.Conv2d):
    """`nn.Conv2d`; the usual ones as products."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, O, H', W']."""
        if not (is_stacked(x) or is_stacked(self.weight)):
            return super().forward(x)
        weight, bias = self.weight, self.bias
        x = x.to(_precision(x, weight))
        stride = self.stride[0]
        plain = self.stride == (stride, stride) and (stride == 1 or suits(x, weight))
        plain = plain and self.dilation == (1, 1) and self.groups == 1 and self.padding_mode == "zeros"
        if not (is_stacked(weight) and plain and x.dim() == 4) or isinstance(self.padding, str):
            out: Tensor = self._conv_forward(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
            return out
        padding = (int(self.padding[0]), int(self.padding[1]))
        return _together(_on_images(lambda x, w, b=None: convolve(x, w, b, padding, stride)), x, weight, bias)


class StackableLinear(nn.Linear):
    """`nn.Linear`; of vectors as products."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, O]."""
        if not (is_stacked(x) or is_stacked(self.weight)):
            return super().forward(x)
        weight, bias = self.weight, self.bias
        x = x.to(_precision(x, weight))
        if not (is_stacked(weight) and x.dim() == 2):
            return functional.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
        return _together(lambda x, w, b=None: multiply(x, w, b), x, weight, bias)


class StackableReLU(nn.ReLU):
    """`nn.ReLU`; of images with channels last, see `accord.executors.kernels.products`."""

    def forward(self, x: Tensor) -> Tensor:
        """Of any shape."""
        images = is_stacked(x) and x.dim() == 4
        return _together(_on_images(torch.relu), x) if images else super().forward(x)


class StackableMaxPool2d(nn.MaxPool2d):
    """`nn.MaxPool2d`; the same for images with channels last."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H', W']."""
        size, stride, padding, dilation = map(pair, (self.kernel_size, self.stride, self.padding, self.dilation))
        plain = padding == (0, 0) and dilation == (1, 1) and size[0] * size[1] < 128  # a byte says which pixel
        if is_stacked(x) and plain and x.dim() == 4 and not (self.ceil_mode or self.return_indices):
            return _together(_on_images(lambda x: pool(x, size, stride)), x)
        out: Tensor = super().forward(x)
        return out


class StackableGroupNorm(nn.GroupNorm):
    """`nn.GroupNorm`, which `torch.vmap` does not know."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, ...]."""
        if not is_stacked(x):
            return super().forward(x)
        wide = x.float() if x.dtype == torch.bfloat16 else x  # as torch's own kernel sums
        groups = wide.reshape(len(x), self.num_groups, -1, *x.shape[2:])
        variance, mean = torch.var_mean(groups, tuple(range(2, groups.dim())), correction=0, keepdim=True)
        out = ((groups - mean) * torch.rsqrt(variance + self.eps)).reshape(x.shape)
        if self.affine:
            shape = (-1, *[1] * (x.dim() - 2))
            out = out * self.weight.view(shape) + self.bias.view(shape)
        return out


class StackableAdaptiveAvgPool2d(nn.AdaptiveAvgPool2d):
    """`nn.AdaptiveAvgPool2d` to one pixel, which `torch.vmap` would do client by client."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, 1, 1]."""
        if is_stacked(x) and self.output_size in (1, (1, 1)):
            return x.mean((-2, -1), keepdim=True)
        return super().forward(x)


LAYERS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv2d: StackableConv2d,
    nn.Linear: StackableLinear,
    nn.ReLU: StackableReLU,
    nn.MaxPool2d: StackableMaxPool2d,
    nn.GroupNorm: StackableGroupNorm,
    nn.AdaptiveAvgPool2d: StackableAdaptiveAvgPool2d,
}


def stacked_layers(network: nn.Module) -> nn.Module:
    """The network with those layers exchanged, in place."""
    return exchanged(network, LAYERS)
