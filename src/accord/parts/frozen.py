"""What a frozen model says about a client's own samples: computed once a round, looked up in every step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from accord.core.types import Batch

CHUNK = 256  # samples per forward pass; without gradients this takes less memory than a training step


def in_chunks(function: Callable[[Tensor], Tensor], x: Tensor, size: int = CHUNK) -> Tensor:
    """`function` of all samples, `size` at a time: besides the result only one chunk is in memory."""
    first = function(x[:size])
    if len(x) <= size:
        return first
    out = first.new_empty(len(x), *first.shape[1:])
    out[:size] = first
    for start in range(size, len(x), size):
        out[start : start + size] = function(x[start : start + size])
    return out


def gathered(stored: Tensor | None, batch: Batch, function: Callable[[Tensor], Tensor]) -> Tensor:
    """The batch's rows of `stored`; computed anew if nothing is stored or the batch was mixed (no index)."""
    if stored is not None and len(batch.index) == len(batch.x):
        return stored.index_select(0, batch.index)
    with torch.no_grad():
        return function(batch.x)
