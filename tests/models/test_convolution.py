"""A convolution whose weight gradient is a matrix product: `nn.Conv2d` in every derivative."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from accord.models import convolution
from accord.models.convolution import ProductConv2d, with_products


def derivatives(network: nn.Module, x: Tensor) -> list[Tensor]:
    """Output, gradients, and gradients of the gradients' squared length."""
    wanted = [x, *network.parameters()]
    out = network(x).pow(2).sum()
    first = torch.autograd.grad(out, wanted, create_graph=True)
    return [out, *first, *torch.autograd.grad(sum((g**2).sum() for g in first), wanted)]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_equals_conv2d(layout: torch.memory_format, float64: None) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, (3, 5), padding=(1, 2)), nn.ReLU(), nn.Conv2d(4, 5, 2, bias=False))
    product = with_products(copy.deepcopy(plain))
    assert [type(layer) for layer in product] == [ProductConv2d, nn.ReLU, ProductConv2d]
    x = torch.randn(2, 3, 7, 6).to(memory_format=layout).requires_grad_()
    for mine, theirs in zip(derivatives(product, x), derivatives(plain, x), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


def test_a_large_input_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = with_products(nn.Sequential(nn.Conv2d(1, 2, 3)))
    x = torch.randn(1, 1, 5, 5)
    assert "Convolve" in type(layer(x).grad_fn).__name__
    monkeypatch.setattr(convolution, "MOST", 25 * 9 - 1)
    assert "Convolve" not in type(layer(x).grad_fn).__name__


@pytest.mark.parametrize(
    "other",
    [{"stride": 2}, {"dilation": 2}, {"groups": 2}, {"padding": "same"}, {"padding": 1, "padding_mode": "reflect"}],
)
def test_unusual_convolutions_stay(other: dict[str, object]) -> None:
    settings: dict[str, object] = {"in_channels": 2, "out_channels": 2, "kernel_size": 3, **other}
    made: nn.Module = nn.Conv2d(**settings)  # type: ignore[arg-type]
    assert type(with_products(nn.Sequential(made))[0]) is nn.Conv2d  # type: ignore[index]
