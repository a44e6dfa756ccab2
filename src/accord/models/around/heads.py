"""A head that reads the direction of the features alone."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from accord.core.whole import Exchanged
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


def exchange(network: nn.Module, at: str, layer: nn.Module) -> None:
    """Put a layer in the place of another."""
    parent, _, leaf = at.rpartition(".")
    setattr(network.get_submodule(parent), leaf, layer)
