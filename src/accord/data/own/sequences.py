"""Sequences of token ids of different lengths, padded, with a mask that says where they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.data.federated import Dataset
from accord.data.own.arrays import from_arrays
from accord.data.own.conversion import as_array
from accord.errors import DataError
from accord.problems.tokens import NO_LABEL

Ragged = Sequence[Sequence[int]]


def from_sequences(
    x: Ragged,
    y: Any,
    clients: Any = None,
    test: Sequence[Any] | None = None,
    classes: int | Sequence[str] | None = None,
    name: str = "own",
    *,
    task: str = "auto",
    length: int | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A data set from sequences of token ids of different lengths; the rest is as in `from_arrays`.

    They are padded to the longest, or to `length`, to which longer ones are cut. A network is given `tokens` [B, L]
    and `mask` [B, L], 1 where a sequence has not ended. `y` is a label per sample, or a list of labels for every
    sequence, one per position (-100: none); where it is padded there is none.
    """
    if test is not None and (not isinstance(test, tuple | list) or len(test) not in (2, 3)):
        raise DataError("test must be (x, y) or (x, y, clients)")
    parts = [("x", x, y), *([("test x", test[0], test[1])] if test is not None else [])]
    longest = max((len(sequence) for _, some, _ in parts for sequence in some), default=0)
    first, *rest = (_part(some, own, length or longest, what) for what, some, own in parts)
    other = None if test is None else (*rest[0], *test[2:])
    return from_arrays(*first, clients, other, classes, name, task=task, test_fraction=test_fraction, seed=seed)


def _part(x: Ragged, y: Any, length: int, what: str) -> tuple[dict[str, Tensor], Any]:
    ids, mask = padded(x, length, what)
    return {"tokens": ids, "mask": mask}, padded_labels(y, x, length, what.replace("x", "y"))


def padded(sequences: Ragged, length: int, what: str) -> tuple[Tensor, Tensor]:
    """[N, length] token ids, 0 where a sequence has ended, and a mask, 1 where it has not; longer ones are cut."""
    ids, mask = np.zeros((len(sequences), length), np.int64), np.zeros((len(sequences), length), np.float32)
    for row, sequence in enumerate(sequences):
        values = as_array(sequence, f"{what} {row}")
        if values.ndim != 1 or not len(values) or values.dtype.kind not in "ui":
            raise DataError(
                f"{what} {row} must be a list of at least one whole number (token ids), got shape {values.shape} and "
                f"type {values.dtype}"
            )
        kept = values[:length]
        ids[row, : len(kept)], mask[row, : len(kept)] = kept, 1
    return torch.from_numpy(ids), torch.from_numpy(mask)


def padded_labels(y: Any, sequences: Ragged, length: int, what: str) -> Any:
    """A label per position, -100 where a sequence has ended; a label per sample stays as it is."""
    if not any(_several(own) for own in y):
        return y
    found = np.full((len(y), length), NO_LABEL, np.int64)
    for row, (own, sequence) in enumerate(zip(y, sequences, strict=False)):
        values = as_array(own, f"{what} {row}")
        if values.shape != (len(sequence),) or values.dtype.kind not in "ui":
            raise DataError(
                f"{what} {row} must be a whole number for each of the {len(sequence)} positions of its sequence "
                f"({NO_LABEL} for none), got shape {values.shape} and type {values.dtype}"
            )
        found[row, : len(values[:length])] = values[:length]
    return found


def _several(label: Any) -> bool:
    """Whether it is a list of labels; of PyTorch's and NumPy's single numbers those of the former have a length too."""
    return hasattr(label, "__len__") and not isinstance(label, str) and getattr(label, "ndim", 1) > 0
