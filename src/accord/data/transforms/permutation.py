"""Pixels in another order at every client."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from accord.data.federated import Dataset, Environment, Index
from accord.data.streams import stream
from accord.data.transforms.registry import TRANSFORMS, Change
from accord.errors import ConfigError
from accord.settings import AtLeast


@dataclass(frozen=True)
class Permute:
    """Every client sees the pixels in its own fixed random order, the same for all channels."""

    seed: int = 0
    keep_first: bool = False

    def __call__(self, client: int, index: Index, x: Tensor) -> Tensor:
        """Inputs of a client, pixels permuted."""
        return self.apply(client, x)

    def order(self, client: int, pixels: int) -> Index:
        """[pixels] the pixel that comes to each place."""
        if client == 0 and self.keep_first:
            return np.arange(pixels, dtype=np.int64)
        return stream(self.seed, "permute", client).permutation(np.arange(pixels, dtype=np.int64))

    def apply(self, client: int, x: Tensor) -> Tensor:
        """Any inputs in this client's order: [B, C, H, W] within each channel, [B, F] over all features."""
        if not len(x):
            return x
        flat = x.flatten(2) if x.dim() > 2 else x
        order = torch.as_tensor(self.order(client, flat.shape[-1]), device=x.device)
        return flat.index_select(-1, order).view(x.shape)


@TRANSFORMS.add("permute")
def permute(
    dataset: Dataset,
    clients: int,
    seed: int,
    *,
    keep_first: Annotated[bool, "leave the pixels of client 0 in place"] = False,
    environments: Annotated[int, AtLeast(1), "test environments: the orders of the first so many clients"] = 10,
) -> Change:
    """Permuted pixels (permuted MNIST of FedFusion); a test environment per client, up to `environments`."""
    if dataset.train.x.dim() < 2:
        raise ConfigError(f"the transform 'permute' needs inputs with features; {dataset.name!r} has single numbers")
    if dataset.fields is not None:
        raise ConfigError(f"the transform 'permute' would mix up the inputs {', '.join(dataset.fields.names)}")
    change = Permute(seed, keep_first)
    shown = range(min(clients, environments))
    return Change(change, [Environment(f"client {i}", functools.partial(change.apply, i)) for i in shown])
