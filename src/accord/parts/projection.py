"""A projection inside the network: its features go through two more layers, and a new classifier reads the result.

    logits = V P(f),   P a perceptron D - D - width with a ReLU between,   V [C, width] with bias

It takes the place of the network's own head, so the network is two layers deeper than it was. To everyone else it is
an ordinary model whose features are the projections.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from torch import Tensor, nn

from accord.core.algorithm import Setup
from accord.core.given import duplicate
from accord.core.model import Classifier, Fuse, Model
from accord.core.task import Part
from accord.core.tensors import Trees
from accord.core.types import World
from accord.errors import ConfigError
from accord.models.around.heads import ProjectedHead, exchange, projector
from accord.parts.mlp import init_mlp


class Projecting(nn.Module):
    """`head(projector(features of the body))`."""

    def __init__(self, body: nn.Module, features: int, width: int, classes: int) -> None:
        super().__init__()
        self.body = body  # whose own head passes its input on
        self.projector = projector(features, width)
        self.head = nn.Linear(width, classes)
        self.head_name = "head"
        self.map_shape = cast(Classifier, body).map_shape

    def as_given(self) -> nn.Module:
        """The body with projector and classifier in the place of its own head."""
        network = duplicate(self.body)
        whole = ProjectedHead(cast(nn.Sequential, duplicate(self.projector)), cast(nn.Linear, duplicate(self.head)))
        exchange(network, cast(Classifier, network).head_name, whole)
        return network

    @property
    def num_features(self) -> int:
        """The length of a projection."""
        return self.head.in_features

    def forward(self, x: Tensor) -> Tensor:
        """[B, C] logits."""
        return self.logits_and_features(x)[0]

    def features(self, x: Tensor) -> Tensor:
        """[B, width] projections."""
        return self.logits_and_features(x)[1]

    def feature_maps(self, x: Tensor) -> Tensor:
        """The body's."""
        return cast(Classifier, self.body).feature_maps(x)

    def logits_and_features(self, x: Tensor, fuse: Fuse | None = None) -> tuple[Tensor, Tensor]:
        """Both in one pass; `fuse` changes the feature maps on their way."""
        _, features = cast(Classifier, self.body).logits_and_features(x, fuse)
        projections: Tensor = self.projector(features)
        return self.head(projections), projections


@dataclass(frozen=True)
class DrawnProjection(Part):
    """Draws the new layers from the run's seed; the network they stand in has none of its own."""

    problems = ("any",)

    def state(self, model: Model, world: World) -> Trees:
        """The first model, with the projector and classifier filled in."""
        network = cast(Projecting, model.network)
        features = cast(nn.Linear, network.projector[0]).in_features
        sizes = (features, features, network.head.in_features)
        projector = init_mlp(world.key.at("projector"), sizes)
        head = init_mlp(world.key.at("head"), (sizes[2], network.head.out_features))
        drawn = {f"projector.{2 * int(name[0])}.{name[2:]}": tensor for name, tensor in projector.items()}
        drawn |= {f"head.{name[2:]}": tensor for name, tensor in head.items()}
        return {"model": {**model.init()[0], **{name: t.to(model.device) for name, t in drawn.items()}}}


def with_projection(setup: Setup, name: str, width: int) -> Setup:
    """The setup with a network that projects; train it with a `DrawnProjection` among the parts."""
    model = setup.model
    if model.head_is_frozen:
        raise ConfigError(
            f"algorithm {name} puts a projection and a classifier of its own in the place of the network's head, but "
            "that head is frozen (requires_grad = False); unfreeze it, or let the classifier read the features"
        )
    if not model.num_features:
        raise ConfigError(
            f"algorithm {name} cannot size its projection: the network does not say how many features it has; "
            "give accord.models.adapt an example"
        )
    body = duplicate(model.network)
    exchange(body, model.head_prefix.removesuffix("."), nn.Identity())
    return replace(setup, model=model.computing(Projecting(body, model.num_features, width, setup.num_classes)))
