"""What a frozen model says about a client's own samples: computed once a round, looked up in every step."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from accord.core.cohort import Answers, Question, cohort_of, in_pieces
from accord.core.types import Batch, Job

# Samples per forward pass: what a CPU's caches hold, and what fills a GPU. Without gradients 512 samples take less
# memory than a training step on 64 of them.
CHUNKS = {"cpu": 32, "cuda": 512}


def _chunk(x: Tensor) -> int:
    """How many samples at a time the device likes."""
    return CHUNKS.get(x.device.type, 32)


def in_chunks(function: Callable[[Tensor], Tensor], x: Tensor, size: int = 0) -> Tensor:
    """`function` of all samples, `size` at a time; 0: as many as the device likes."""
    (out,) = in_pieces(lambda piece: (function(piece),), x, size or _chunk(x))
    return out


def asked(job: Job, name: Hashable, question: Question) -> Answers:
    """What `question` is answered for the client's own samples; it knows no more of the client than those.

    Clients that begin together are asked together, where that is quicker: under one name all ask the same.
    """
    cohort = cohort_of(job.data)
    if cohort is None:
        return in_pieces(question, job.data.x, _chunk(job.data.x))
    return cohort.answers(job.data, name, question)


def gathered(stored: Tensor | None, batch: Batch, function: Callable[[Tensor], Tensor]) -> Tensor:
    """The batch's rows of `stored`; computed anew if nothing is stored or the batch was mixed (no index)."""
    if stored is not None and len(batch.index) == len(batch.x):
        return stored.index_select(0, batch.index)
    with torch.no_grad():
        return function(batch.x)
