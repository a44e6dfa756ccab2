"""Two extractors whose feature maps are fused on their way to the head (FedFusion).

conv:    F = W (E_l || E_g) + b per pixel, W [C, 2C]
multi:   F = lambda * E_g + (1 - lambda) * E_l, lambda [C];   single: lambda one number
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from accord.core.given import duplicate
from accord.core.model import Classifier
from accord.core.whole import Settings, Whole
from accord.errors import DataError


def fuse(fusion: Mapping[str, Tensor], local: Tensor, received: Tensor) -> Tensor:
    """[B, C, H, W] fused maps; `fusion` says by its names which operator it is."""
    if "weight" in fusion:
        return functional.conv2d(torch.cat([local, received], 1), fusion["weight"][:, :, None, None], fusion["bias"])
    # As a step from the local maps, so that lambda = 0 gives them, and their gradient, to the last bit.
    return local + fusion["lambda"].view(-1, 1, 1) * (received - local)


class Fused(Whole):
    """The network, its maps fused with those of the network before it, or with themselves."""

    kind: ClassVar[str] = "fusion"

    def __init__(self, network: nn.Module, received: nn.Module | None, fusion: Mapping[str, Tensor]) -> None:
        super().__init__(network)
        self.received = received
        self.fusion = nn.ParameterDict({name: nn.Parameter(t, False) for name, t in fusion.items()})

    def forward(self, x: Tensor) -> Tensor:
        """[B, C] logits."""
        fusion = dict(self.fusion.items())
        maps = None if self.received is None else cast(Classifier, self.received).feature_maps(x)

        def fused(own: Tensor) -> Tensor:
            return fuse(fusion, own, own if maps is None else maps)

        return cast(Classifier, self.network).logits_and_features(x, fused)[0]

    def settings(self) -> Settings:
        own = self.fusion["weight"] if "weight" in self.fusion else self.fusion["lambda"]
        operator = "conv" if "weight" in self.fusion else "multi" if own.dim() else "single"
        return {
            "operator": operator,
            "channels": len(own) if own.dim() else 1,
            "received": self.received is not None,
        }

    @classmethod
    def blank(cls, network: nn.Module, operator: str, channels: int, received: bool) -> Fused:
        """To be filled with values."""
        shapes: dict[str, dict[str, tuple[int, ...]]] = {
            "conv": {"bias": (channels,), "weight": (channels, 2 * channels)},
            "multi": {"lambda": (channels,)},
            "single": {"lambda": ()},
        }
        if operator not in shapes or type(channels) is not int or channels < 1:
            raise DataError(f"a fusion is of channels, at least one, by one of {', '.join(shapes)}")
        fusion = {name: torch.zeros(shape) for name, shape in shapes[operator].items()}
        return cls(network, duplicate(network) if received else None, fusion)
