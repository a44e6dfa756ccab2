"""Tables of layers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from accord.models import MODELS, Layer, count_parameters, layers, table


def test_layers_of_the_report_network():
    assert layers(MODELS["report_cnn"]((1, 28, 28), 10), (1, 28, 28)) == [
        Layer("maps.0", "Conv2d", (10, 24, 24), 260),
        Layer("maps.1", "MaxPool2d", (10, 12, 12), 0),
        Layer("maps.2", "ReLU", (10, 12, 12), 0),
        Layer("maps.3", "Conv2d", (20, 8, 8), 5020),
        Layer("maps.4", "Dropout2d", (20, 8, 8), 0),
        Layer("maps.5", "MaxPool2d", (20, 4, 4), 0),
        Layer("maps.6", "ReLU", (20, 4, 4), 0),
        Layer("neck.0", "Flatten", (320,), 0),
        Layer("neck.1", "Linear", (50,), 16050),
        Layer("neck.2", "ReLU", (50,), 0),
        Layer("neck.3", "Dropout", (50,), 0),
        Layer("head", "Linear", (10,), 510),
    ]


def test_table_of_a_small_network():
    assert table(MODELS["mlp"]((4,), 3, hidden=(50, 30)), (4,)).splitlines() == [
        "layer   kind     output  parameters",
        "maps    Flatten  4                0",
        "neck.0  Linear   50             250",
        "neck.1  ReLU     50               0",
        "neck.2  Linear   30           1,530",
        "neck.3  ReLU     30               0",
        "head    Linear   3               93",
        "total                         1,873",
    ]


@pytest.mark.parametrize("name", ["cct7", "fedbr_cnn", "vgg11"])
def test_rows_sum_to_the_total(name):
    network = MODELS[name]((3, 32, 32), 100)
    found = layers(network, (3, 32, 32))
    assert sum(layer.parameters for layer in found) == count_parameters(network)
    assert found[-1].output == (100,)


class Odd(nn.Module):
    """One layer used twice, one never, one parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.twice = nn.Linear(3, 3)
        self.never = nn.Linear(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.twice(self.twice(x))


def test_shared_and_unused_layers():
    module = Odd().double().train()
    assert layers(module, (3,)) == [
        Layer("twice", "Linear", (3,), 12),
        Layer("twice", "Linear", (3,), 0),
        Layer("", "Odd", (3,), 3),
        Layer("never", "Linear", (), 20),
    ]
    assert module.training
    assert not any(part._forward_hooks for part in module.modules())


def test_count_parameters():
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(3, 4))
    assert count_parameters(module) == 32
    module[1].weight = module[0].weight  # tied: counts once
    assert count_parameters(module) == 20
    module[0].bias.requires_grad_(False)
    assert count_parameters(module, trainable_only=True) == 16
