"""What every network offers: logits, features (the head's input) and feature maps.

B samples, C classes, D features. A network is cut in three: `maps` (convolutions: channels x height x width),
`neck` (maps to feature vector) and `head` (features to logits). FedFusion fuses the maps; MOON, FedRANE and
FedUFO's discriminator read the features; FedPer and FedBABU treat the head on its own.
All randomness of a forward pass sits in `nn.Dropout` modules, so it can be found by type.
"""

from __future__ import annotations

from torch import Tensor, nn

from accord.core.model import Fuse, Shape


class Network(nn.Module):
    """`head(neck(maps(x)))`. Without convolutions `maps` only flattens, and a map is a vector."""

    def __init__(self, maps: nn.Module, neck: nn.Module, head: nn.Linear, map_shape: Shape) -> None:
        super().__init__()
        self.maps = maps
        self.neck = neck
        self.head = head
        self.head_name = "head"
        self.map_shape: Shape | None = map_shape

    @property
    def num_features(self) -> int:
        """D, the length of a feature vector."""
        return self.head.in_features

    def forward(self, x: Tensor) -> Tensor:
        """[B, C] logits."""
        return self.logits_and_features(x)[0]

    def features(self, x: Tensor) -> Tensor:
        """[B, D] features: what the head reads."""
        features: Tensor = self.neck(self.maps(x))
        return features

    def feature_maps(self, x: Tensor) -> Tensor:
        """[B, channels, height, width] output of the convolutions."""
        maps: Tensor = self.maps(x)
        return maps

    def logits_and_features(self, x: Tensor, fuse: Fuse | None = None) -> tuple[Tensor, Tensor]:
        """Both in one pass; `fuse` changes the feature maps on their way."""
        maps = self.feature_maps(x)
        features: Tensor = self.neck(maps if fuse is None else fuse(maps))
        return self.head(features), features
