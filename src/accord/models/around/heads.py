"""Heads that stand in the place of a network's own."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from accord.core.whole import Exchanged, Settings
from accord.errors import DataError

SHORTEST = 1e-4  # shorter features are not stretched to length one: gradients grow by 1 / length


class UnitHead(Exchanged):
    """Cosines between the features and the rows of an orthonormal matrix."""

    kind: ClassVar[str] = "unit_head"

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.in_features = weight.shape[1]
        self.weight = nn.Parameter(weight)

    def forward(self, features: Tensor) -> Tensor:
        """[B, C] logits in [-1, 1]."""
        return nn.functional.normalize(features, dim=-1, eps=SHORTEST) @ self.weight.mT


def unit_head(network: nn.Module, at: str) -> nn.Module:
    """The network with a blank one in the place of the linear layer called so, in place."""
    head = dict(network.named_modules()).get(at)
    if not at or not isinstance(head, nn.Linear):
        raise DataError(f"the network's head should be a linear layer called {at[:200]!r}, and is none")
    exchange(network, at, UnitHead(torch.zeros_like(head.weight)))
    return network


class ProjectedHead(Exchanged):
    """A classifier that reads a projection of the features, D - D - width with a ReLU between."""

    kind: ClassVar[str] = "projected_head"

    def __init__(self, projector: nn.Sequential, head: nn.Linear) -> None:
        super().__init__()
        self.projector, self.head = projector, head

    def forward(self, features: Tensor) -> Tensor:
        """[B, C] logits."""
        logits: Tensor = self.head(self.projector(features))
        return logits

    def settings(self) -> Settings:
        return {"width": self.head.in_features}


def projector(features: int, width: int) -> nn.Sequential:
    """The layers of the projection."""
    return nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, width))


def projected_head(network: nn.Module, at: str, width: int) -> nn.Module:
    """The network with a blank one in the place of the linear layer called so, in place."""
    head = dict(network.named_modules()).get(at)
    if not at or not isinstance(head, nn.Linear):
        raise DataError(f"the network's head should be a linear layer called {at[:200]!r}, and is none")
    if type(width) is not int or width < 1:
        raise DataError(f"the width of a projection must be a whole number above 0, not {str(width)[:40]}")
    blank = ProjectedHead(projector(head.in_features, width), nn.Linear(width, head.out_features))
    exchange(network, at, blank.to(head.weight.dtype))
    return network


def exchange(network: nn.Module, at: str, layer: nn.Module) -> None:
    """Put a layer in the place of another."""
    parent, _, leaf = at.rpartition(".")
    setattr(network.get_submodule(parent), leaf, layer)
