"""The clients' values side by side, in float64, as many at a time as the machine likes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from accord.core.types import Replies

BLOCKS = {"cpu": 1 << 18, "cuda": 1 << 25}  # numbers held at once: in a CPU's cache; few launches on a GPU


def stacked_blocks(replies: Replies, tree: str, name: str) -> Iterator[tuple[slice, Tensor]]:
    """Which values of the tensor, flattened, and [k, ...] of all clients."""
    sent = [one[name].reshape(-1) for one in replies.each(tree)]
    width = max(BLOCKS.get(sent[0].device.type, 1 << 18) // len(sent), 1)
    for left in range(0, len(sent[0]), width):
        part = slice(left, left + width)
        yield part, torch.stack([values[part] for values in sent]).double()
