"""Labels of any task, as they come: which task they are for, and the tensors and names they become.

| `task = "auto"` | what y is |
|---|---|
| regression | real numbers, [N] or [N, D]; of whole ones stored so, if they are few, it must be said |
| multilabel | 0 and 1 (or true and false), [N, C] |
| tokens | other whole numbers, [N, L]; -100 where a position has no label |
| classification | whole numbers, [N] |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from accord.data.own.conversion import as_array, class_names, labels
from accord.errors import DataError
from accord.problems import PROBLEMS

Array = npt.NDArray[Any]
FEW = 20  # different whole numbers, stored as real ones, that may be classes


@dataclass(frozen=True)
class Targets:
    """Labels of one part, and the task they are for."""

    y: Tensor
    task: str


def targets(y: Any, count: int, task: str, what: str = "y") -> Targets:
    """[N, ...] labels for the task, or for the one they look like."""
    array = as_array(y, what)
    if array.ndim == 2 and array.shape[1] == 1 and task not in ("tokens", "multilabel"):
        array = array[:, 0]
    if task != "auto":
        PROBLEMS[task]  # an unknown one is refused with those there are
    found = task if task != "auto" else _looks_like(array, what)
    if PROBLEMS[found].one_class:
        return Targets(labels(array, count, what), found)
    if len(array) != count:
        raise DataError(f"there are {count} samples but {what} has {len(array)} labels; they must be as many")
    if array.dtype.kind not in "buif":
        raise DataError(f"{what} must hold numbers for {found}, got dtype {array.dtype}")
    if PROBLEMS[found].real_labels:
        return Targets(torch.from_numpy(array.astype(np.float64)).to(torch.get_default_dtype()), found)
    if array.dtype.kind == "f" and (array != np.floor(array)).any():
        raise DataError(f"{what} must hold whole numbers for {found}, and some have fractions or are missing")
    return Targets(torch.from_numpy(array.astype(np.int64)), found)


def output_names(classes: int | Sequence[str] | None, task: str, parts: dict[str, Tensor]) -> tuple[str, ...]:
    """Names of what a network gives a number for, and the check that the labels fit them."""
    if PROBLEMS[task].one_class:
        return class_names(classes, parts)
    names = _names(classes, task, parts)
    for what, y in parts.items():
        PROBLEMS[task].check(y, len(names), what.replace("y", "").strip() or "train")
    return names


def _names(classes: int | Sequence[str] | None, task: str, parts: dict[str, Tensor]) -> tuple[str, ...]:
    if task == "tokens":
        return class_names(classes, {what: y[y >= 0] for what, y in parts.items()})
    first = next(iter(parts.values()))
    width = first.shape[1] if first.dim() == 2 else 1
    if classes is None:
        classes = ["y"] if width == 1 else width
    if isinstance(classes, int | np.integer):
        classes = [str(number) for number in range(int(classes))]
    names = tuple(str(name) for name in classes)
    if len(names) != width or len(set(names)) != width:
        raise DataError(f"y has {width} columns for {task}; classes must be as many different names, got {names[:10]}")
    return names


def strata(y: Tensor, task: str) -> npt.NDArray[np.int64]:
    """[N] what test samples are spread over: classes, where there are any."""
    return y.numpy() if PROBLEMS[task].one_class else np.zeros(len(y), dtype=np.int64)


def _looks_like(array: Array, what: str) -> str:
    if array.ndim < 2:
        return _one_number(array, what)
    binary = array.dtype.kind in "buif" and bool(((array == 0) | (array == 1)).all())
    if binary and (array.dtype.kind == "f" or (array.sum(axis=1) == 1).all()):
        raise DataError(
            f"{what} of shape {array.shape} holds only 0 and 1: say task='multilabel', or task='regression'; from "
            "one-hot classes: y.argmax(1)"
        )
    if binary:
        return "multilabel"
    return "regression" if array.dtype.kind == "f" else "tokens"


def _one_number(array: Array, what: str) -> str:
    if array.dtype.kind != "f":
        return "classification"
    if len(array) and (array == np.floor(array)).all() and len(np.unique(array)) <= FEW:
        raise DataError(
            f"{what} holds {len(np.unique(array))} different whole numbers, stored as real ones: say "
            "task='classification' if they are classes, or task='regression' if they are amounts"
        )
    return "regression"
