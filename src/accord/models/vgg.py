"""VGG-11 without its fully connected layers."""

from __future__ import annotations

from torch import nn

from accord.core.model import Shape
from accord.models.network import Network
from accord.models.registry import MODELS
from accord.models.shapes import image_channels, map_shape

# Filters of the 3 x 3 convolutions; None halves the image.
LAYERS = (64, None, 128, None, 256, 256, None, 512, 512, None, 512, 512, None)


@MODELS.add("vgg11")
def vgg11(input_shape: Shape, num_classes: int) -> Network:
    """VGG-11 of Simonyan and Zisserman (2015) as in FedBR: no batch norm, average pooling, one linear layer.

    9,220,480 parameters without the head; 512 features; images of 32 x 32 or more.
    """
    channels, shape = image_channels("vgg11", input_shape, num_classes)
    layers: list[nn.Module] = []
    for filters in LAYERS:
        if filters is None:
            layers.insert(-1, nn.MaxPool2d(2))  # before ReLU: the same numbers, a quarter of its work
        else:
            layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU()]
            channels = filters
    maps = nn.Sequential(*layers)
    out = map_shape("vgg11", maps, shape)
    neck = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Network(maps, neck, nn.Linear(512, num_classes), out)
