"""Operators that fuse the feature maps of a trained and of a frozen network. C channels of H x W pixels.

conv:    W (local || global) + b   per pixel, `weight` [C, 2C], `bias` [C]
multi:   lambda * global + (1 - lambda) * local   per channel, `lambda` [C]
single:  the same with one number, `lambda` []
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from accord.core.tensors import Tree

Operator = Literal["conv", "multi", "single"]
Init = Literal["identity", "default"]


def init_fusion(rng: np.random.Generator, operator: Operator, channels: int, init: Init, lambda0: float) -> Tree:
    """The first values. conv: [I, 0], which passes the local maps through, or torch's default draw."""
    if operator != "conv":
        return {"lambda": torch.full((channels,) if operator == "multi" else (), float(lambda0))}
    if init == "identity":
        return {"bias": torch.zeros(channels), "weight": torch.eye(channels, 2 * channels)}
    bound = 1 / np.sqrt(2 * channels)  # of a convolution with 2C inputs per output
    weight, bias = (rng.uniform(-bound, bound, shape) for shape in ((channels, 2 * channels), channels))
    return {"bias": torch.from_numpy(bias), "weight": torch.from_numpy(weight)}


def fuse(fusion: Mapping[str, Tensor], local: Tensor, received: Tensor) -> Tensor:
    """[B, C, H, W] fused maps; `fusion` says by its names which operator it is."""
    if "weight" in fusion:
        return functional.conv2d(torch.cat([local, received], 1), fusion["weight"][:, :, None, None], fusion["bias"])
    # As a step from the local maps, so that lambda = 0 gives them, and their gradient, to the last bit.
    return local + fusion["lambda"].view(-1, 1, 1) * (received - local)
