"""Weights from a file into a network of a few numbers: names, what is refused, what is said of the head."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from accord.errors import DataError
from accord.models.weights import load_weights, ours


class Small(nn.Module):
    """A convolution, a norm and a head under our names."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        self.maps = nn.Module()
        self.maps.conv, self.maps.norm = nn.Conv2d(1, 2, 1, bias=False), nn.BatchNorm2d(2)
        self.head = nn.Linear(2, classes)


def theirs(**others: Any) -> dict[str, Tensor]:
    """The tensors under torchvision's names; None leaves one out."""
    tensors = {
        "conv1.weight": torch.full((2, 1, 1, 1), 5.0),
        "bn1.weight": torch.full((2,), 6.0),
        "bn1.bias": torch.full((2,), 7.0),
        "bn1.running_mean": torch.full((2,), 8.0),
        "bn1.running_var": torch.full((2,), 9.0),
        "bn1.num_batches_tracked": torch.tensor(4),
        "fc.weight": torch.full((2, 2), 10.0),
        "fc.bias": torch.full((2,), 11.0),
    }
    changed = {name.replace("__", "."): tensor for name, tensor in others.items()}
    return {name: tensor for name, tensor in {**tensors, **changed}.items() if tensor is not None}


def loaded(folder: Path, given: dict[str, Tensor], network: Small) -> dict[str, Tensor]:
    save_file(given, folder / "w.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_weights(network, folder / "w.safetensors")
    return network.state_dict()


def refused(folder: Path, given: dict[str, Tensor]) -> str:
    network = Small()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    with pytest.raises(DataError) as error:
        loaded(folder, given, network)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    return str(error.value)


def test_names() -> None:
    assert {
        name: ours(name) for name in ("conv1.weight", "fc.bias", "layer2.11.conv3.weight", "layer4.0.bn2.bias")
    } == {
        "conv1.weight": "maps.conv.weight",
        "fc.bias": "head.bias",
        "layer2.11.conv3.weight": "maps.stage2.11.residual.conv3.weight",
        "layer4.0.bn2.bias": "maps.stage4.0.residual.norm2.bias",
    }
    assert ours("layer1.0.downsample.0.weight") == "maps.stage1.0.shortcut.0.weight"
    assert ours("other.conv1.weight") == "other.conv1.weight"


def test_all_of_it_is_taken(tmp_path: Path) -> None:
    state = loaded(tmp_path, theirs(), Small())
    values = {name: float(tensor.flatten()[0]) for name, tensor in state.items()}
    assert values == {
        "maps.conv.weight": 5.0,
        "maps.norm.weight": 6.0,
        "maps.norm.bias": 7.0,
        "maps.norm.running_mean": 8.0,
        "maps.norm.running_var": 9.0,
        "maps.norm.num_batches_tracked": 0.0,  # counts this network's own batches
        "head.weight": 10.0,
        "head.bias": 11.0,
    }
    assert loaded(tmp_path, theirs(bn1__num_batches_tracked=None), Small())["maps.norm.bias"][0] == 7


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"fc__weight": torch.ones(3, 2), "fc__bias": torch.ones(3)}, "3 x 2 instead of 2 x 2"),
        ({"fc__weight": None, "fc__bias": None}, "none instead of 2 x 2"),
        ({"fc__bias": None}, "2 x 2 instead of 2 x 2"),
    ],
)
def test_a_head_that_does_not_fit_stays_as_a_whole_and_that_is_said(
    tmp_path: Path, others: dict[str, Any], said: str
) -> None:
    network = Small()
    head = {name: tensor.clone() for name, tensor in network.head.state_dict().items()}
    save_file(theirs(**others), tmp_path / "w.safetensors")
    words = rf"w\.safetensors: the head stays as it was drawn.*\({said}\); all other 5 tensors were taken"
    with pytest.warns(UserWarning, match=words) as caught:
        load_weights(network, tmp_path / "w.safetensors")
    assert len(caught) == 1
    assert caught[0].filename == __file__, "whoever asked for the weights"
    assert all(torch.equal(network.head.state_dict()[name], tensor) for name, tensor in head.items())
    assert network.state_dict()["maps.conv.weight"].flatten().tolist() == [5.0, 5.0]


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"bn1__bias": None}, "maps.norm.bias is missing"),
        ({"extra": torch.ones(1)}, "extra is none of the network's"),
        ({"conv1__weight": torch.ones(2, 3, 1, 1)}, "maps.conv.weight is 2 x 3 x 1 x 1, not 2 x 1 x 1 x 1"),
        ({"bn1__bias": torch.tensor(1.0)}, "maps.norm.bias is a number, not 2"),
        ({"bn1__bias": torch.tensor([1.0, float("nan")])}, "maps.norm.bias holds values that are not finite"),
        ({"bn1__bias": torch.tensor([float("inf"), 0.0])}, "maps.norm.bias holds values that are not finite"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_taken(tmp_path: Path, others: dict[str, Any], said: str) -> None:
    told = refused(tmp_path, theirs(**others))
    assert f"nothing was taken from it: {said}. It must hold" in told


@pytest.mark.parametrize(("count", "more"), [(4, ""), (5, ""), (6, "; and 1 more"), (8, "; and 3 more")])
def test_five_problems_are_named(tmp_path: Path, count: int, more: str) -> None:
    told = refused(tmp_path, theirs(**{f"extra{number}": torch.ones(1) for number in range(count)}))
    assert len(re.findall("is none of the network's", told)) == min(count, 5)
    assert f"network's{more}. It must hold" in told


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(b"no")
    for name in ("w.safetensors", "nowhere.safetensors"):
        with pytest.raises(DataError, match=rf"{name} cannot be read as a safetensors file: "):
            load_weights(Small(), tmp_path / name)


def test_the_home_of_the_user_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    save_file(theirs(), tmp_path / "w.safetensors")
    network = Small()
    load_weights(network, "~/w.safetensors")
    assert network.state_dict()["maps.conv.weight"].flatten().tolist() == [5.0, 5.0]
