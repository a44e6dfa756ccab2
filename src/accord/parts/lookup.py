"""What a frozen model says about a client's own samples: computed once a round, looked up in every step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from accord.core.types import Batch

# Samples per forward pass: what a CPU's caches hold, and what fills a GPU. Without gradients 512 samples take less
# memory than a training step on 64 of them.
CHUNKS = {"cpu": 32, "cuda": 512}


def pieces(x: Tensor, size: int = 0) -> tuple[Tensor, ...]:
    """All samples, `size` at a time; 0: as many as the device likes."""
    return torch.split(x, size or CHUNKS.get(x.device.type, 32))


def in_chunks(function: Callable[[Tensor], Tensor], x: Tensor, size: int = 0) -> Tensor:
    """`function` of all samples, `size` at a time: besides the result only one chunk is in memory."""
    head, *tail = pieces(x, size)
    first = function(head)
    if not tail:
        return first
    out = first.new_empty(len(x), *first.shape[1:])
    out[: len(head)] = first
    for place, piece in zip(torch.split(out[len(head) :], len(head)), tail, strict=True):
        place.copy_(function(piece))
    return out


def gathered(stored: Tensor | None, batch: Batch, function: Callable[[Tensor], Tensor]) -> Tensor:
    """The batch's rows of `stored`; computed anew if nothing is stored or the batch was mixed (no index)."""
    if stored is not None and len(batch.index) == len(batch.x):
        return stored.index_select(0, batch.index)
    with torch.no_grad():
        return function(batch.x)
