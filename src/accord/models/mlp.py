"""Networks without convolutions; they take samples of any shape and flatten them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from torch import nn

from accord.core.model import Shape
from accord.errors import ConfigError
from accord.models.blocks import dense, drop_layer
from accord.models.network import Network
from accord.models.registry import MODELS
from accord.models.shapes import flat_length
from accord.settings import PROPER_FRACTION, AtLeast


@MODELS.add("linear")
def linear(input_shape: Shape, num_classes: int) -> Network:
    """Softmax regression: one linear layer on the flattened sample, which is its own feature vector."""
    length = flat_length("linear", input_shape, num_classes)
    return Network(nn.Flatten(), nn.Identity(), nn.Linear(length, num_classes), (length,))


@MODELS.add("mlp")
def mlp(
    input_shape: Shape,
    num_classes: int,
    hidden: Annotated[tuple[int, ...], AtLeast(1), "width of every hidden layer, in order"] = (128, 64),
    dropout: Annotated[float, PROPER_FRACTION, "dropout after the last hidden layer"] = 0.0,
) -> Network:
    """Fully connected layers with ReLU, for tables; the last hidden layer is the feature vector."""
    length = flat_length("mlp", input_shape, num_classes)
    if not isinstance(hidden, Sequence) or not hidden:
        raise ConfigError(
            f"model 'mlp': `hidden` lists the width of every hidden layer, e.g. (128, 64), got {hidden!r}; "
            "without hidden layers the model is 'linear'"
        )
    neck = nn.Sequential(*dense([length, *hidden]), drop_layer(dropout))
    return Network(nn.Flatten(), neck, nn.Linear(hidden[-1], num_classes), (length,))


@MODELS.add("2nn")
def two_nn(
    input_shape: Shape,
    num_classes: int,
    hidden: Annotated[int, AtLeast(1), "width of both hidden layers"] = 200,
) -> Network:
    """Two hidden layers of 200 with ReLU, the 2NN of McMahan et al. (2017); 199,210 parameters on MNIST."""
    length = flat_length("2nn", input_shape, num_classes)
    neck = nn.Sequential(*dense([length, hidden, hidden]))
    return Network(nn.Flatten(), neck, nn.Linear(hidden, num_classes), (length,))
