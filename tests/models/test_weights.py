"""torchvision's weights from a file: under their own names, whole or not at all."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from accord.errors import DataError
from accord.models.resnet import resnet18, resnet50
from accord.models.weights import load_weights

# Names and shapes as torchvision has them, written down from its definition of ResNets and not from our code.
BOTTLENECK = {"layer1": (64, 64, 256, 3), "layer2": (256, 128, 512, 4), "layer3": (512, 256, 1024, 6)}


def published(classes: int = 1000) -> dict[str, Tensor]:
    """A ResNet-50's tensors, drawn."""
    torch.manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {
        "conv1.weight": (64, 3, 7, 7),
        "fc.weight": (classes, 2048),
        "fc.bias": (classes,),
    }

    def norm(name: str, channels: int) -> None:
        shapes.update({f"{name}.{part}": (channels,) for part in ("weight", "bias", "running_mean", "running_var")})
        shapes[f"{name}.num_batches_tracked"] = ()

    norm("bn1", 64)
    for layer, (inputs, width, outputs, count) in {**BOTTLENECK, "layer4": (1024, 512, 2048, 3)}.items():
        for unit in range(count):
            first = inputs if unit == 0 else outputs
            kernels = ((width, first, 1, 1), (width, width, 3, 3), (outputs, width, 1, 1))
            for number, kernel in enumerate(kernels, start=1):
                shapes[f"{layer}.{unit}.conv{number}.weight"] = kernel
                norm(f"{layer}.{unit}.bn{number}", kernel[0])
        shapes[f"{layer}.0.downsample.0.weight"] = (outputs, inputs, 1, 1)
        norm(f"{layer}.0.downsample.1", outputs)
    return {name: torch.rand(shape) + 0.5 for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def tensors() -> dict[str, Tensor]:
    return published()


def test_resnet50_takes_all_of_it_and_says_that_its_head_is_another(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    save_file(tensors, tmp_path / "w.safetensors")
    network = resnet50((3, 32, 32), 7, norm="batch", weights=str(tmp_path / "w.safetensors"))
    head = network.head.weight.clone()
    with pytest.warns(
        UserWarning, match="the head stays as it was drawn.*1000 x 2048 instead of 7 x 2048.*265 tensors"
    ):
        network.drawn()  # type: ignore[operator]
    assert torch.equal(network.head.weight, head)
    state = network.state_dict()
    assert torch.equal(state["maps.conv.weight"], tensors["conv1.weight"])
    assert torch.equal(state["maps.stage3.5.residual.norm2.running_var"], tensors["layer3.5.bn2.running_var"])
    assert torch.equal(state["maps.stage4.0.shortcut.0.weight"], tensors["layer4.0.downsample.0.weight"])


def test_a_head_of_as_many_classes_is_taken(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    mine = {**tensors, "fc.weight": torch.ones(7, 2048), "fc.bias": torch.zeros(7)}
    save_file(mine, tmp_path / "w.safetensors")
    network = resnet50((3, 32, 32), 7, norm="batch")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_weights(network, tmp_path / "w.safetensors")
    assert bool((network.head.weight == 1).all())


def test_what_does_not_fit_is_refused_and_nothing_is_taken(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    short = {name: t for name, t in tensors.items() if name != "layer2.1.conv3.weight"}
    save_file(short, tmp_path / "short.safetensors")
    network = resnet50((3, 32, 32), 7, norm="batch")
    before = network.state_dict()["maps.conv.weight"].clone()
    with pytest.raises(DataError, match=r"maps\.stage2\.1\.residual\.conv3\.weight is missing"):
        load_weights(network, tmp_path / "short.safetensors")
    assert torch.equal(network.state_dict()["maps.conv.weight"], before)
    save_file(tensors, tmp_path / "w.safetensors")
    with pytest.raises(DataError, match=r"running_mean is none of the network's.*batch norm's weights want"):
        load_weights(resnet50((3, 32, 32), 7), tmp_path / "w.safetensors")
    with pytest.raises(DataError, match="does not fit"):
        load_weights(resnet18((3, 32, 32), 7, norm="batch"), tmp_path / "w.safetensors")
    (tmp_path / "junk.safetensors").write_bytes(b"no tensors here")
    with pytest.raises(DataError, match="cannot be read as a safetensors file"):
        load_weights(network, tmp_path / "junk.safetensors")
