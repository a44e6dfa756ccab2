"""`model.init`: what each framework draws, held against its published rule."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

import accord
from accord.config import load_config
from accord.errors import ConfigError
from accord.models import MODELS, initialise
from accord.models.initialisation import INITIALISATIONS

IMAGE = (3, 32, 32)


def made(name: str, kind: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    network = MODELS[name](IMAGE, 10)
    initialise(network, kind)
    return network.requires_grad_(False)


def layers(network: nn.Module, kind: type[nn.Module]) -> list[nn.Module]:
    return [layer for layer in network.modules() if isinstance(layer, kind)]


@pytest.mark.parametrize("name", ["vgg11", "resnet18"])
def test_torchvision_convolutions(name: str) -> None:
    network = made(name, "torchvision")
    for layer in layers(network, nn.Conv2d):
        fan_out = layer.out_channels * math.prod(layer.kernel_size)
        count = layer.weight.numel()
        expected = math.sqrt(2 / fan_out)
        assert float(layer.weight.std()) == pytest.approx(expected, rel=6 / math.sqrt(count))
        assert layer.weight.abs().max() > 2.5 * expected  # a normal one, not a uniform one
        assert layer.bias is None or not layer.bias.any()


def test_torchvision_leaves_linear_layers_as_torch_drew_them() -> None:
    assert torch.equal(made("vgg11", "torchvision").head.weight, made("vgg11", "torch").head.weight)


def test_torchvision_norms_are_one_and_zero() -> None:
    network = MODELS["resnet18"](IMAGE, 10, norm="batch")
    norms = layers(network, nn.BatchNorm2d)
    for norm in norms:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    initialise(network, "torchvision")
    assert all(bool((norm.weight == 1).all()) and not norm.bias.any() for norm in norms)


def test_truncated_normal() -> None:
    for layer in (l for kind in (nn.Conv2d, nn.Linear) for l in layers(made("mcmahan_cnn", "truncated_normal"), kind)):
        assert layer.weight.abs().max() <= 0.2
        # deviation of a normal distribution cut off at two of its deviations
        assert float(layer.weight.std()) == pytest.approx(0.1 * 0.8796, rel=6 / math.sqrt(layer.weight.numel()))
        assert bool((layer.bias == torch.tensor(0.1)).all())


def test_keras_is_glorot_uniform() -> None:
    for layer in layers(made("2nn", "keras"), nn.Linear):
        limit = math.sqrt(6 / (layer.in_features + layer.out_features))
        assert 0.98 * limit < float(layer.weight.abs().max()) <= limit
        assert float(layer.weight.std()) == pytest.approx(limit / math.sqrt(3), rel=0.05)
        assert not layer.bias.any()
    conv = layers(made("mcmahan_cnn", "keras"), nn.Conv2d)[1]
    limit = math.sqrt(6 / (25 * 32 + 25 * 64))
    assert 0.98 * limit < float(conv.weight.abs().max()) <= limit


@pytest.mark.parametrize("kind", [kind for kind in INITIALISATIONS if kind != "torch"])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "transformer"])
def test_every_model_takes_every_rule_and_repeats_it(name: str, kind: str) -> None:
    one, two, plain = made(name, kind), made(name, kind), made(name, "torch")
    first, again, torchs = one.state_dict(), two.state_dict(), plain.state_dict()
    assert all(torch.equal(first[n], again[n]) for n in first)
    changed = any(not torch.equal(first[n], torchs[n]) for n in first)
    assert changed or (kind == "torchvision" and not layers(one, nn.Conv2d))


def test_a_run_takes_it_from_the_configuration_and_torch_is_the_default(tmp_path: Path) -> None:
    base = ["rounds=1", "data.limit=200", "partition.clients=4", f"out={tmp_path}", "executor=sequential"]
    losses = {}
    for kind in ("", "torch", "keras"):
        sets = [*base, f"name=run-{kind}", *([f"model.init={kind}"] if kind else [])]
        losses[kind] = accord.run(load_config(None, sets)).metrics[0]["loss"]
    assert losses[""] == losses["torch"] != losses["keras"]


def test_an_own_network_keeps_its_weights(tmp_path: Path) -> None:
    network = accord.models.adapt(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), head="1")
    config = load_config(None, ["rounds=1", "data.limit=200", "model.init=keras", f"out={tmp_path}"])
    with pytest.raises(ConfigError, match="keeps the weights it came with"):
        accord.run(config, model=network)
