"""Shapes and modes while a network is built, and the tables of its layers, on modules of a few numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from accord.errors import ConfigError
from accord.models import MODELS, Layer, count_parameters, layers, shapes, table
from accord.models.blocks import dense, drop_layer
from accord.models.shapes import evaluating, flat_length, image_channels, map_shape, output_shape


class Seen(nn.Module):
    """Notes the mode, whether gradients are kept, and what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Dropout(0.5)
        self.notes = list[Any]()

    def forward(self, x: Tensor) -> Tensor:
        self.notes.append((self.training, self.inner.training, torch.is_grad_enabled(), x))
        return x.flatten(1)[:, :2]


def test_nothing_is_drawn_or_kept_while_a_network_is_tried() -> None:
    module = Seen()
    module.inner.eval()
    assert output_shape(module, (3, 4)) == (2,)
    ((mode, inner, gradients, x),) = module.notes
    assert (mode, inner, gradients) == (False, False, False)
    assert x.shape == (1, 3, 4)
    assert not x.any()
    assert module.training
    assert not module.inner.training, "its own mode"
    with pytest.raises(ZeroDivisionError), evaluating(module):
        raise ZeroDivisionError
    assert module.training
    assert torch.is_grad_enabled()


class Least(nn.Module):
    """Takes images of at least so many pixels a side."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        if min(x.shape[2:]) < self.side or x.shape[1] != 2:
            raise RuntimeError("too small")
        return x


def test_the_smallest_image_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "LARGEST_SIDE", 8)
    assert map_shape("m", Least(3), (2, 3, 4)) == (2, 3, 4)
    with pytest.raises(ConfigError, match=r"'m' wants images of at least 3 x 3 pixels, got input shape \(2, 2, 9\)"):
        map_shape("m", Least(3), (2, 2, 9))
    with pytest.raises(ConfigError, match="at least 7 x 7"):
        map_shape("m", Least(7), (2, 2, 2))
    with pytest.raises(RuntimeError, match="too small"):
        map_shape("m", Least(8), (2, 2, 2))
    with pytest.raises(RuntimeError, match="too small"):
        map_shape("m", Least(1), (3, 2, 2))


def test_channels_and_lengths() -> None:
    assert image_channels("m", [3, 1, 5], 1) == (3, (3, 1, 5))
    assert flat_length("m", (2, 3, 5), 1) == 30
    assert flat_length("m", (1,), 1) == 1
    with pytest.raises(ConfigError, match=r"got input shape \(4, 5\); add a channel dimension"):
        image_channels("m", (4, 5), 2)
    for shape in ((4,), (1, 2, 3, 4)):
        with pytest.raises(ConfigError) as error:
            image_channels("m", shape, 2)
        assert "add a channel" not in str(error.value)
    for wrong in ((), (0,), (2, 0), (-1, 3)):
        with pytest.raises(ConfigError, match="at least one number each, got input shape"):
            flat_length("m", wrong, 2)
    with pytest.raises(ConfigError, match="needs at least 1 output"):
        flat_length("m", (2,), 0)


def test_small_pieces() -> None:
    assert isinstance(drop_layer(0), nn.Identity)
    one, whole = drop_layer(0.25), drop_layer(0.5, whole_maps=True)
    assert (type(one), type(whole)) == (nn.Dropout, nn.Dropout2d)
    assert isinstance(one, nn.Dropout)
    assert one.p == 0.25
    assert isinstance(whole, nn.Dropout2d)
    assert whole.p == 0.5
    assert [str(layer) for layer in dense([4, 3, 2])] == [
        *("Linear(in_features=4, out_features=3, bias=True)", "ReLU()"),
        *("Linear(in_features=3, out_features=2, bias=True)", "ReLU()"),
    ]
    assert dense([4]) == []


class Pair(nn.Module):
    """Gives two tensors, and holds a number that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.kept = nn.Parameter(torch.zeros(4), False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.first(x), x


def test_layers_that_give_no_tensor_have_no_shape() -> None:
    module = Pair().double()
    assert layers(module, (2,)) == [Layer("first", "Linear", (3,), 9), Layer("", "Pair", (), 4)]
    assert count_parameters(module) == 13
    assert count_parameters(module, trainable_only=True) == 9
    assert layers(nn.Flatten(), (2, 2)) == [Layer("", "Flatten", (4,), 0)]


def test_a_table_leaves_out_what_does_nothing() -> None:
    network = nn.Sequential(nn.Linear(2, 700), nn.Identity(), nn.Linear(700, 1))
    assert table(network, (2,)).splitlines() == [
        "layer  kind    output  parameters",
        "0      Linear  700          2,100",
        "2      Linear  1              701",
        "total                       2,801",
    ]
    assert table(Pair(), (2,)).splitlines()[2] == "       Pair    -                4"


def test_positions_of_the_compact_transformer_begin_with_a_deviation_of_a_fifth() -> None:
    torch.manual_seed(0)
    positions = MODELS["cct7"]((1, 8, 8), 2).get_parameter("neck.positions").detach()
    assert positions.shape == (1, 16, 256)
    assert float(positions.std()) == pytest.approx(0.2, rel=0.05)


def test_stems_of_residual_networks() -> None:
    imagenet, cifar = (MODELS["resnet18"]((3, 32, 32), 2, stem=stem).maps for stem in ("imagenet", "cifar"))
    assert str(imagenet.conv).startswith("Conv2d(3, 64, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3), bias=False")
    assert (imagenet.pool.kernel_size, imagenet.pool.stride, imagenet.pool.padding) == (3, 2, 1)
    assert str(cifar.conv).startswith("Conv2d(3, 64, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False")
    assert not hasattr(cifar, "pool")
    for maps in (imagenet, cifar):
        assert isinstance(maps.norm, nn.GroupNorm)
        assert maps.norm.num_groups == 32
        for stage, stride in ((1, 1), (2, 2), (3, 2), (4, 2)):
            first, second = getattr(maps, f"stage{stage}")
            assert first.residual.conv1.stride == (stride, stride)
            assert first.residual.conv2.stride == second.residual.conv1.stride == (1, 1)
            assert isinstance(first.shortcut, nn.Identity) == (stage == 1)
            assert isinstance(second.shortcut, nn.Identity)
            if stage > 1:
                assert first.shortcut[0].stride == (2, 2)
                assert first.shortcut[0].kernel_size == (1, 1)


def test_a_bottleneck_strides_in_its_middle() -> None:
    from accord.models.resnet import Residual

    block = Residual(64, 16, 2, True, "batch", 1)
    kernels = [tuple(getattr(block.residual, f"conv{n}").weight.shape) for n in (1, 2, 3)]
    assert kernels == [(16, 64, 1, 1), (16, 16, 3, 3), (64, 16, 1, 1)]
    assert [getattr(block.residual, f"conv{n}").stride[0] for n in (1, 2, 3)] == [1, 2, 1]
    assert not isinstance(block.shortcut, nn.Identity), "as many channels, but half the size"
    plain = Residual(8, 8, 1, False, "group", 4)
    assert isinstance(plain.shortcut, nn.Identity)
    assert list(dict(plain.residual.named_children())) == ["conv1", "norm1", "relu1", "conv2", "norm2"]
    x = torch.randn(2, 8, 3, 3)
    assert torch.equal(plain(x), torch.relu(x + plain.residual(x)))
    assert isinstance(Residual(8, 16, 1, False, "group", 4).shortcut, nn.Sequential)
