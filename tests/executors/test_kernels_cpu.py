"""The layers used on a CPU give torch's own numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from accord.executors.kernels.cpu import CPUConv2d, CPUMaxPool2d, cpu_layers
from accord.models import MODELS, adapt
from support.federation import suited


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (2, 3), "stride": (1, 2), "padding": (0, 1)},
        {"kernel_size": 3, "stride": 1},
        {"kernel_size": 2, "stride": 3},
        {"kernel_size": 2, "ceil_mode": True},
        {"kernel_size": 2, "dilation": 2},
    ],
)
@pytest.mark.parametrize("shape", [(2, 3, 9, 8), (3, 7, 7), (2, 1, 6, 6)])
@pytest.mark.parametrize("trained", [False, True])
def test_pooling_equals_torchs_to_the_bit(settings: dict[str, Any], shape: tuple[int, ...], trained: bool) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).mul(4).round()  # equal values among them
    mine, theirs = x.clone().requires_grad_(trained), x.clone().requires_grad_(trained)
    pooled, expected = CPUMaxPool2d(**settings)(mine), nn.MaxPool2d(**settings)(theirs)
    assert torch.equal(pooled, expected)
    if trained:
        slopes = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
        assert torch.equal(*(torch.autograd.grad(y, t, slopes)[0] for y, t in ((pooled, mine), (expected, theirs))))


@pytest.mark.parametrize("laid", [torch.contiguous_format, torch.channels_last])
def test_a_gradient_of_pooling_lies_as_the_images_did(laid: torch.memory_format) -> None:
    x = torch.randn(2, 3, 6, 6).contiguous(memory_format=laid).requires_grad_()
    pooled = CPUMaxPool2d(2)(x)
    assert pooled.is_contiguous(), "each channel's pixels together"
    (grad,) = torch.autograd.grad(pooled.sum(), x)
    assert grad.is_contiguous(memory_format=laid)


def test_whole_numbers_are_pooled_with_nothing_around_them() -> None:
    """All of them below zero: what lies around an image is less than any."""
    x = torch.arange(16).view(1, 1, 4, 4) - 20
    assert CPUMaxPool2d(2, padding=1)(x).flatten().tolist() == [-20, -18, -17, -12, -10, -9, -8, -6, -5]


def values(layer: nn.Conv2d, x: Tensor) -> list[Tensor]:
    """What comes out, and all gradients of a sum in which every number counts differently."""
    x = x.clone().requires_grad_()
    y = layer(x)
    slopes = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=x.dtype)
    return [y, *torch.autograd.grad((y * slopes).sum(), [x, *layer.parameters()])]


@pytest.mark.parametrize(
    "settings",
    [
        {"in_channels": 1, "padding": 2},
        {"in_channels": 3, "stride": 2, "bias": False},
        {"in_channels": 16, "groups": 2, "dilation": 2},
        {"in_channels": 32, "padding": 1},
        {"in_channels": 3, "padding": 1, "padding_mode": "circular"},
        {"in_channels": 2, "padding": "same"},
    ],
)
@pytest.mark.parametrize("laid", [torch.contiguous_format, torch.channels_last])
def test_convolutions_equal_torchs(settings: dict[str, Any], laid: torch.memory_format) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(out_channels=4, kernel_size=3, dtype=torch.float64, **settings)
    x = torch.randn(2, settings["in_channels"], 8, 9, dtype=torch.float64).contiguous(memory_format=laid)
    expected = values(layer, x)
    for mine, theirs in zip(values(cpu_layers(layer), x), expected, strict=True):  # type: ignore[arg-type]
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("channels", "last"), [(3, True), (16, True), (17, False), (32, False)])
def test_convolutions_of_few_channels_leave_them_last(channels: int, last: bool) -> None:
    out = CPUConv2d(channels, 4, 3)(torch.randn(2, channels, 6, 6))
    assert out.is_contiguous(memory_format=torch.channels_last) == last
    assert out.is_contiguous() != last


def test_one_image_without_a_batch() -> None:
    layer, x = nn.Conv2d(1, 2, 3), torch.randn(1, 6, 6)
    expected = layer(x)
    torch.testing.assert_close(cpu_layers(layer)(x), expected)


def test_not_a_number_stays_visible() -> None:
    x = torch.zeros(1, 1, 4, 4)
    x[0, 0, 1, 2] = torch.nan
    assert CPUMaxPool2d(2)(x).isnan().tolist() == [[[[False, True], [False, False]]]]


def test_gradients_are_torchs_own() -> None:
    x = torch.ones(1, 1, 2, 2, requires_grad=True)  # four equal maxima: torch sends the gradient to the first
    (slope,) = torch.autograd.grad(CPUMaxPool2d(2)(x).sum(), x)
    assert slope.flatten().tolist() == [1.0, 0.0, 0.0, 0.0]


def test_the_gradients_own_gradient_too() -> None:
    """For methods that look through a step."""
    layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(2, 3, 2)).double()
    x = torch.randn(2, 1, 8, 8, dtype=torch.float64)

    def twice(network: nn.Module) -> Tensor:
        weight = next(network.parameters())
        (slope,) = torch.autograd.grad(network(x).pow(3).sum(), weight, create_graph=True)
        return torch.autograd.grad(slope.pow(2).sum(), weight)[0]

    expected = twice(layers)
    torch.testing.assert_close(twice(cpu_layers(layers)), expected)


def test_a_window_that_does_not_fit_is_refused_as_ever() -> None:
    with pytest.raises(RuntimeError, match="too small"):
        CPUMaxPool2d(3)(torch.zeros(1, 1, 2, 2))


def test_names_and_kinds_stay() -> None:
    network = MODELS["mcmahan_cnn"]((1, 8, 8), 3)
    before = list(network.state_dict())
    kinds = [type(module).__name__ for module in cpu_layers(network).modules()]
    assert list(network.state_dict()) == before
    assert kinds.count("CPUMaxPool2d") == kinds.count("CPUConv2d") == 2
    assert kinds.count("MaxPool2d") == kinds.count("Conv2d") == 0


def test_the_users_module_keeps_its_own_layers() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3))
    x = torch.randn(4, 1, 8, 8)
    model = suited(adapt(module, head="3", maps="1", example=x))
    assert any(isinstance(m, CPUConv2d) for m in model._train.modules())
    assert any(isinstance(m, CPUConv2d) for m in model.computing(model.network)._train.modules())
    params, buffers = model.init()
    exported = model.module(params, buffers)
    assert not any(isinstance(m, CPUConv2d | CPUMaxPool2d) for m in (*exported.modules(), *module.modules()))
    torch.testing.assert_close(model.reference(params, buffers, x).logits, exported(x))
    torch.testing.assert_close(model.maps(params, buffers, x), module[:2](x))


@pytest.mark.parametrize("shape", [(1, 1, 2, 5), (1, 1, 5, 2), (1, 2, 2, 2)])
@pytest.mark.parametrize("grad", [False, True])
def test_windows_that_do_not_fit_are_refused_in_torchs_own_words(shape: tuple[int, ...], grad: bool) -> None:
    words = []
    for kind in (nn.MaxPool2d, CPUMaxPool2d):
        x = torch.zeros(shape, requires_grad=grad)
        with pytest.raises(RuntimeError) as caught:
            kind(3)(x)
        words.append(str(caught.value))
    assert words[0] == words[1]
    padded = torch.rand(shape)
    assert torch.equal(CPUMaxPool2d(3, padding=1)(padded), nn.MaxPool2d(3, padding=1)(padded))


@pytest.mark.parametrize("grad", [False, True])
def test_batches_of_images_are_pooled_here_and_all_else_by_torch(grad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = nn.MaxPool2d.forward
    asked: list[tuple[int, ...]] = []

    def forward(self: nn.MaxPool2d, x: Tensor) -> Tensor:
        asked.append(tuple(x.shape))
        return plain(self, x)

    monkeypatch.setattr(nn.MaxPool2d, "forward", forward)
    x = torch.rand(2, 3, 4, 6, requires_grad=grad)
    assert CPUMaxPool2d(2)(x).shape == (2, 3, 2, 3)
    assert asked == []
    CPUMaxPool2d(2)(x[0])
    CPUMaxPool2d(2, dilation=2)(x)
    CPUMaxPool2d(2, ceil_mode=True)(x)
    CPUMaxPool2d(2, return_indices=True)(x)
    assert asked == [(3, 4, 6)] + [(2, 3, 4, 6)] * 3


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ((1, 2, 3, 5), {"kernel_size": 3}),  # as high as the image
        ((1, 2, 5, 3), {"kernel_size": 3}),  # as wide
        ((1, 2, 2, 4), {"kernel_size": (4, 3), "padding": (1, 1)}),  # as high with what is added on both sides
        ((1, 2, 4, 2), {"kernel_size": (3, 4), "padding": (1, 1)}),
    ],
)
def test_a_window_as_large_as_the_image_is_pooled_here(
    shape: tuple[int, ...], settings: dict[str, Any], grad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.rand(shape, requires_grad=grad)
    expected = nn.MaxPool2d(**settings)(x)
    monkeypatch.setattr(nn.MaxPool2d, "forward", None)
    assert torch.equal(CPUMaxPool2d(**settings)(x), expected)
