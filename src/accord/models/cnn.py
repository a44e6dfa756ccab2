"""The small convolutional networks of the papers, for 28 x 28 and 32 x 32 images and others that fit.

Sizes after each layer are read off the input, so every network takes every image that survives its pooling.
Pooling comes before ReLU, also where papers write it after: numbers and gradients are the same, to the last bit, and
ReLU has a quarter of the work. Parameter counts in the docstrings are for the papers' images: 1 x 28 x 28, or
3 x 32 x 32 with 10 classes.
"""

from __future__ import annotations

from math import prod
from typing import Annotated

from torch import nn

from accord.core.model import Shape
from accord.models.blocks import dense, drop_layer
from accord.models.network import Network
from accord.models.registry import MODELS
from accord.models.shapes import image_channels, map_shape
from accord.settings import PROPER_FRACTION


@MODELS.add("mcmahan_cnn")
def mcmahan_cnn(
    input_shape: Shape,
    num_classes: int,
    dropout: Annotated[float, PROPER_FRACTION, "dropout before the head (0.2 in the code of FedFusion)"] = 0.0,
) -> Network:
    """MNIST CNN of McMahan et al. (2017), also FedMMD's and FedFusion's: 32 and 64 filters, 512 features.

    1,663,370 parameters.
    """
    channels, shape = image_channels("mcmahan_cnn", input_shape, num_classes)
    maps = nn.Sequential(
        *(nn.Conv2d(channels, 32, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()),
    )
    out = map_shape("mcmahan_cnn", maps, shape)
    neck = nn.Sequential(nn.Flatten(), *dense([prod(out), 512]), drop_layer(dropout))
    return Network(maps, neck, nn.Linear(512, num_classes), out)


@MODELS.add("cifar_cnn")
def cifar_cnn(
    input_shape: Shape,
    num_classes: int,
    dropout: Annotated[float, PROPER_FRACTION, "dropout after both hidden layers"] = 0.0,
) -> Network:
    """CIFAR CNN of FedMMD and FedFusion (the TensorFlow tutorial's): two times 64 filters, 384 and 192 units.

    1,756,426 parameters; maps 64 x 8 x 8.
    """
    channels, shape = image_channels("cifar_cnn", input_shape, num_classes)
    maps = nn.Sequential(
        *(nn.Conv2d(channels, 64, 5, padding=2), nn.MaxPool2d(3, 2, padding=1), nn.ReLU()),
        *(nn.Conv2d(64, 64, 5, padding=2), nn.MaxPool2d(3, 2, padding=1), nn.ReLU()),
    )
    out = map_shape("cifar_cnn", maps, shape)
    neck = nn.Sequential(
        nn.Flatten(),
        *(*dense([prod(out), 384]), drop_layer(dropout)),
        *(*dense([384, 192]), drop_layer(dropout)),
    )
    return Network(maps, neck, nn.Linear(192, num_classes), out)


@MODELS.add("fedufo_cnn")
def fedufo_cnn(input_shape: Shape, num_classes: int) -> Network:
    """CIFAR CNN for FedUFO, whose paper gives only the 64 features: as `cifar_cnn`, then 384 and 64 units.

    1,337,226 parameters; pooling without padding, so maps are 64 x 7 x 7.
    """
    channels, shape = image_channels("fedufo_cnn", input_shape, num_classes)
    maps = nn.Sequential(
        *(nn.Conv2d(channels, 64, 5, padding=2), nn.MaxPool2d(3, 2), nn.ReLU()),
        *(nn.Conv2d(64, 64, 5, padding=2), nn.MaxPool2d(3, 2), nn.ReLU()),
    )
    out = map_shape("fedufo_cnn", maps, shape)
    neck = nn.Sequential(nn.Flatten(), *dense([prod(out), 384, 64]))
    return Network(maps, neck, nn.Linear(64, num_classes), out)


@MODELS.add("report_cnn")
def report_cnn(
    input_shape: Shape,
    num_classes: int,
    dropout: Annotated[float, PROPER_FRACTION, "dropout of whole maps and of the features"] = 0.5,
) -> Network:
    """CNN of the FedUFO reproduction report by Biswas and Oschatz: 10 and 20 filters, 50 features.

    21,840 parameters. Gives logits where the report gives log-softmax; cross-entropy is the same.
    The report's discriminator reads the 320 flattened maps (`feature_maps`), not the 50 features.
    """
    channels, shape = image_channels("report_cnn", input_shape, num_classes)
    maps = nn.Sequential(
        *(nn.Conv2d(channels, 10, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(10, 20, 5), drop_layer(dropout, whole_maps=True), nn.MaxPool2d(2), nn.ReLU()),
    )
    out = map_shape("report_cnn", maps, shape)
    neck = nn.Sequential(nn.Flatten(), *dense([prod(out), 50]), drop_layer(dropout))
    return Network(maps, neck, nn.Linear(50, num_classes), out)


@MODELS.add("fedbr_cnn")
def fedbr_cnn(input_shape: Shape, num_classes: int) -> Network:
    """MNIST CNN of FedBR (DomainBed's): four convolutions, group norm after each ReLU, 128 pooled features.

    370,560 parameters without the head.
    """
    channels, shape = image_channels("fedbr_cnn", input_shape, num_classes)
    maps = nn.Sequential(
        *(nn.Conv2d(channels, 64, 3, padding=1), nn.ReLU(), nn.GroupNorm(8, 64)),
        *(nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(), nn.GroupNorm(8, 128)),
        *(nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(), nn.GroupNorm(8, 128)),
        *(nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(), nn.GroupNorm(8, 128)),
    )
    out = map_shape("fedbr_cnn", maps, shape)
    neck = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Network(maps, neck, nn.Linear(128, num_classes), out)


@MODELS.add("convnet")
def convnet(input_shape: Shape, num_classes: int) -> Network:
    """EMNIST and Fashion-MNIST network of FedRANE: 32 and 64 filters without padding, 512, 256 and 64 units.

    726,362 parameters for the 26 letters.
    """
    channels, shape = image_channels("convnet", input_shape, num_classes)
    maps = nn.Sequential(
        *(nn.Conv2d(channels, 32, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(32, 64, 5), nn.MaxPool2d(2), nn.ReLU()),
    )
    out = map_shape("convnet", maps, shape)
    neck = nn.Sequential(nn.Flatten(), *dense([prod(out), 512, 256, 64]))
    return Network(maps, neck, nn.Linear(64, num_classes), out)
