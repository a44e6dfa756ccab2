"""Trees on their way through Ray's object store: one flat array, read where it lies, and where all tensors are.

Ray pickles tensors one by one and copies them out again; a plain array is copied once when it is stored, and mapped.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch

from accord.core.tensors import Trees, clone
from accord.wire.codec import ALIGNMENT, Layout, place, room, views


class Parcel(NamedTuple):
    """Trees, packed."""

    layout: Layout
    values: np.ndarray[Any, np.dtype[np.uint8]]


def packed(trees: Trees) -> Parcel:
    """A copy of all tensors."""
    buffer = torch.empty(room(trees), dtype=torch.uint8)
    return Parcel(place(trees, buffer), buffer.numpy())


def unpacked(parcel: Parcel) -> Trees:
    """The tensors, where they lie: not to be written to. Where torch would not put them they are copied, since kernels
    may add in another order there.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        buffer = torch.from_numpy(parcel.values)
    return views(parcel.layout, buffer.clone() if buffer.data_ptr() % ALIGNMENT else buffer)


def taken_out(parcel: Parcel, device: torch.device) -> Trees:
    """Tensors of their own on the device: the store's memory is free again."""
    trees = unpacked(parcel)
    if device.type == "cpu":
        return {name: clone(tree) for name, tree in trees.items()}
    return on(trees, device)


def on(trees: Trees, device: torch.device) -> Trees:
    """Trees where a device finds them."""
    return {name: {leaf: tensor.to(device) for leaf, tensor in tree.items()} for name, tree in trees.items()}
