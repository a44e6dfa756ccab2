"""Trees as bytes (safetensors) and as slices of a shared buffer. Nothing here can execute what it reads."""

from __future__ import annotations

import json
from collections.abc import Mapping

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from accord.core.tensors import Tree, Trees, join, split
from accord.errors import DataError

ALIGNMENT = 64  # slices start where torch's own allocations would, so kernels take the same path
Layout = dict[str, list[tuple[str, torch.dtype, tuple[int, ...], int]]]


def encode(trees: Mapping[str, Tree], header: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file; tree names stand in its metadata, so that empty trees arrive too."""
    flat = {name: t.detach().cpu().contiguous() for name, t in join(trees).items()}
    return save(flat, metadata={**(header or {}), "trees": json.dumps(sorted(trees))})


def decode(data: bytes) -> Trees:
    """The inverse of `encode`."""
    try:
        flat = load(data)
        length = int.from_bytes(data[:8], "little")
        names = json.loads(json.loads(data[8 : 8 + length]).get("__metadata__", {}).get("trees", "[]"))
    except (SafetensorError, ValueError, KeyError) as error:
        raise DataError(f"these bytes are not a safetensors message: {error}") from error
    return {**{name: {} for name in names}, **split(flat)}


def room(trees: Mapping[str, Tree]) -> int:
    """Bytes `place` needs."""
    return sum(
        -(-t.numel() * t.element_size() // ALIGNMENT) * ALIGNMENT for tree in trees.values() for t in tree.values()
    )


def place(trees: Mapping[str, Tree], buffer: Tensor) -> Layout:
    """Copy all tensors into `buffer` (uint8); the layout says where each one lies."""
    layout: Layout = {}
    offset = 0
    for name in sorted(trees):
        rows = layout.setdefault(name, [])
        for leaf in sorted(trees[name]):
            tensor = trees[name][leaf]
            size = tensor.numel() * tensor.element_size()
            if size:
                buffer[offset : offset + size].view(tensor.dtype).view(tensor.shape).copy_(tensor)
            rows.append((leaf, tensor.dtype, tuple(tensor.shape), offset))
            offset += -(-size // ALIGNMENT) * ALIGNMENT
    return layout


def views(layout: Layout, buffer: Tensor) -> Trees:
    """The placed tensors, without copying."""
    trees: Trees = {}
    for name, rows in layout.items():
        tree = trees.setdefault(name, {})
        for leaf, dtype, shape, offset in rows:
            size = torch.Size(shape).numel() * dtype.itemsize
            tree[leaf] = (
                buffer[offset : offset + size].view(dtype).view(shape) if size else torch.empty(shape, dtype=dtype)
            )
    return trees
