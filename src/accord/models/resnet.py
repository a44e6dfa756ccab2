"""Residual networks of He et al. (2016), with group norm unless batch norm is asked for.

Batch norm's running statistics differ from client to client on non-IID data, which is why group norm is the
default (Hsieh et al., 2020). Parameter counts are the same with either.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from accord.core.model import Shape
from accord.errors import ConfigError
from accord.models.network import Network
from accord.models.registry import MODELS
from accord.models.shapes import image_channels, map_shape
from accord.models.weights import load_weights
from accord.settings import Range

Norm = Literal["group", "batch"]
Stem = Literal["imagenet", "cifar"]
NormSetting = Annotated[Norm, "normalisation after every convolution"]
StemSetting = Annotated[Stem, "first layer: 7 x 7 stride 2 and max pooling (imagenet), or 3 x 3 (cifar)"]
WeightsSetting = Annotated[str, "a safetensors file with torchvision's weights; read after they were drawn"]
GroupsSetting = Annotated[int, Range(low=1, high=64), "groups of group norm; must divide 64"]


def _norm(channels: int, kind: Norm, groups: int) -> nn.Module:
    return nn.GroupNorm(groups, channels) if kind == "group" else nn.BatchNorm2d(channels)


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


class Residual(nn.Module):
    """Convolutions with a shortcut around them: two of 3 x 3, or a bottleneck of 1 x 1, 3 x 3 and 1 x 1."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool, norm: Norm, groups: int) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        # (inputs, outputs, size, stride); a bottleneck strides in its 3 x 3, as torchvision does.
        layers = (
            [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
            if bottleneck
            else [(inputs, width, 3, stride), (width, outputs, 3, 1)]
        )
        steps: OrderedDict[str, nn.Module] = OrderedDict()
        for number, layer in enumerate(layers, start=1):
            if number > 1:
                steps[f"relu{number - 1}"] = nn.ReLU()
            steps[f"conv{number}"] = _conv(*layer)
            steps[f"norm{number}"] = _norm(layer[1], norm, groups)
        self.residual = nn.Sequential(steps)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(_conv(inputs, outputs, 1, stride), _norm(outputs, norm, groups))

    def forward(self, x: Tensor) -> Tensor:
        """`relu(shortcut(x) + residual(x))`."""
        return torch.relu(self.shortcut(x) + self.residual(x))


class ResNet(Network):
    """A network that may have its weights from a file."""

    weights = ""

    def drawn(self) -> None:
        """Called when its weights have been drawn by whatever rule."""
        if self.weights:
            load_weights(self, self.weights)


def _resnet(
    name: str,
    input_shape: Shape,
    num_classes: int,
    blocks: tuple[int, int, int, int],
    bottleneck: bool,
    norm: Norm,
    stem: Stem,
    groups: int,
    weights: str,
) -> Network:
    channels, shape = image_channels(name, input_shape, num_classes)
    if 64 % groups:
        raise ConfigError(f"model {name!r}: groups must divide 64 (1, 2, 4, 8, 16, 32 or 64), got {groups}")
    first = _conv(channels, 64, 7, stride=2) if stem == "imagenet" else _conv(channels, 64, 3)
    layers: OrderedDict[str, nn.Module] = OrderedDict(conv=first, norm=_norm(64, norm, groups), relu=nn.ReLU())
    if stem == "imagenet":
        layers["pool"] = nn.MaxPool2d(3, 2, padding=1)
    inputs = 64
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        units = []
        for unit in range(count):
            stride = 2 if stage > 0 and unit == 0 else 1
            units.append(Residual(inputs, width, stride, bottleneck, norm, groups))
            inputs = 4 * width if bottleneck else width
        layers[f"stage{stage + 1}"] = nn.Sequential(*units)
    maps = nn.Sequential(layers)
    out = map_shape(name, maps, shape)
    neck = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network = ResNet(maps, neck, nn.Linear(inputs, num_classes), out)
    network.weights = weights
    return network


@MODELS.add("resnet18")
def resnet18(
    input_shape: Shape,
    num_classes: int,
    norm: NormSetting = "group",
    stem: StemSetting = "imagenet",
    groups: GroupsSetting = 32,
    weights: WeightsSetting = "",
) -> Network:
    """ResNet-18, FedRANE's network for CIFAR (with the ImageNet stem); 512 features.

    11,181,642 parameters for 10 classes, 11,173,962 with the CIFAR stem.
    """
    return _resnet("resnet18", input_shape, num_classes, (2, 2, 2, 2), False, norm, stem, groups, weights)


@MODELS.add("resnet50")
def resnet50(
    input_shape: Shape,
    num_classes: int,
    norm: NormSetting = "group",
    stem: StemSetting = "imagenet",
    groups: GroupsSetting = 32,
    weights: WeightsSetting = "",
) -> Network:
    """ResNet-50, FedUFO's network for re-identification and CUB-200; 2048 features.

    25,557,032 parameters for 1000 classes. The weights are random unless a file is given:
    nothing is downloaded.
    """
    return _resnet("resnet50", input_shape, num_classes, (3, 4, 6, 3), True, norm, stem, groups, weights)
