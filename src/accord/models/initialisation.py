"""How a network's weights are drawn, where the authors' framework draws them otherwise than torch's layers do.

`docs/initialisation.md` says which of the papers' networks begins how. Every rule goes through the layers in the order
of `Module.modules()` and draws from torch's generator: whoever calls seeds it. What a rule does not name keeps the
values it was made with.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from accord.settings import Registry

Draw = Callable[[Tensor], object]
INITIALISATIONS: Registry[Callable[[nn.Module], None]] = Registry("initialisation")

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@INITIALISATIONS.add("torch")
def as_made(network: nn.Module) -> None:
    """As torch's layers drew them when they were made."""


@INITIALISATIONS.add("torchvision")
def torchvision(network: nn.Module) -> None:
    """Kaiming normal by fan-out and zero bias for convolutions, 1 and 0 for norms; linear layers stay torch's.

    So the features of torchvision's VGG and all of its ResNets. (The deviation of 0.01 is that of the three fully
    connected layers at the end of a VGG, which ours has not.)
    """
    for layer in network.modules():
        if isinstance(layer, CONVOLUTIONS):
            _draw(layer, lambda weight: nn.init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu"))
        elif isinstance(layer, (nn.BatchNorm2d, nn.GroupNorm)) and layer.affine:
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)


@INITIALISATIONS.add("truncated_normal")
def truncated_normal(network: nn.Module) -> None:
    """The tutorial of TensorFlow 1: a deviation of 0.1, redrawn beyond two of them; biases of 0.1."""
    for layer in network.modules():
        if isinstance(layer, (*CONVOLUTIONS, nn.Linear)):
            _draw(layer, lambda weight: nn.init.trunc_normal_(weight, std=0.1, a=-0.2, b=0.2), bias=0.1)


@INITIALISATIONS.add("keras")
def keras(network: nn.Module) -> None:
    """Glorot uniform and zero bias, the default of Keras and of `tf.layers`."""
    for layer in network.modules():
        if isinstance(layer, (*CONVOLUTIONS, nn.Linear)):
            _draw(layer, nn.init.xavier_uniform_)


def initialise(network: nn.Module, kind: str) -> None:
    """Draw the weights again by the rule of this name; `torch` leaves them as the layers drew them."""
    INITIALISATIONS[kind](network)


def _draw(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear, draw: Draw, bias: float = 0.0) -> None:
    draw(layer.weight)
    if layer.bias is not None:
        nn.init.constant_(layer.bias, bias)
