"""How exactly a GPU multiplies, set for the time of a run and put back after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def numerics(precision: str) -> Iterator[None]:
    """`fp32` is exact single precision; torch alone would let convolutions round to tf32.

    Convolutions also keep to deterministic kernels, so that a run repeats, and resumes, to the bit.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    matmul.allow_tf32 = cudnn.allow_tf32 = precision != "fp32"
    cudnn.deterministic = True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = before
