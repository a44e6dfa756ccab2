"""Checks of inputs and labels that come from outside, before they become tensors.

Every message names the argument, says how many entries are wrong and shows the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from accord.core.tensors import finite
from accord.errors import DataError


def as_array(values: Any, what: str) -> npt.NDArray[Any]:
    """A NumPy array of numbers or strings from an array, a tensor, a data frame or nested lists."""
    if isinstance(values, Tensor):
        if values.layout is not torch.strided:
            raise DataError(f"{what} is a sparse tensor ({values.layout}); give it as {what}.to_dense()")
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise DataError(f"{what} has {int(values.mask.sum())} masked entries; fill or drop them first")
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise DataError(f"{what} is no rectangular array ({error}); all samples need the same shape") from error
    if array.dtype == object:
        missing = [place for place, value in enumerate(array.ravel().tolist()) if value is None]
        if missing:
            raise DataError(f"{what} has {len(missing)} missing entries, first at position {missing[0]}")
        raise DataError(
            f"{what} has dtype object (ragged or mixed contents); give numbers of one type, all samples of "
            "the same shape"
        )
    return array


def inputs(x: Any, what: str = "x") -> Tensor:
    """[N, ...] bytes stay bytes, other whole numbers become int64 (token ids), all else the default float.

    Byte images are channels first; [N, H, W] bytes are grey images and get their channel axis.
    """
    array = as_array(x, what)
    if array.ndim < 2:
        raise DataError(f"{what} must be [samples, ...], got shape {array.shape}; one feature: x.reshape(-1, 1)")
    if array.size == 0:
        raise DataError(f"{what} is empty: shape {array.shape}")
    if array.dtype.kind not in "buif":
        raise DataError(f"{what} must hold real numbers, got dtype {array.dtype}")
    if array.dtype == np.uint8:
        if array.ndim == 4 and array.shape[3] in (1, 3, 4) and array.shape[1] not in (1, 3, 4):
            raise DataError(
                f"{what} of shape {array.shape} looks like images with the channels last; "
                "give [N, channels, height, width]: x.transpose(0, 3, 1, 2)"
            )
        return torch.from_numpy(np.array(array[:, None] if array.ndim == 3 else array, order="C"))
    if array.dtype.kind in "ui":
        if array.dtype.kind == "u" and int(array.max()) > np.iinfo(np.int64).max:
            raise DataError(f"{what} holds whole numbers above 2^63 - 1")
        return torch.from_numpy(np.array(array, dtype=np.int64, order="C"))
    wide = np.array(array, dtype=np.float64 if array.dtype.itemsize > 4 else np.float32, order="C")
    tensor = torch.from_numpy(wide).to(torch.get_default_dtype())
    if not finite({what: {"values": tensor}}):
        bad = torch.nonzero(~torch.isfinite(tensor).flatten(1).all(1)).flatten()
        row = tensor[bad[0]].flatten()
        column = int(torch.nonzero(~torch.isfinite(row))[0])
        place = tuple(int(i) for i in np.unravel_index(column, tensor.shape[1:]))
        raise DataError(
            f"{what} has NaN or infinite values in {len(bad)} of {len(tensor)} rows, first "
            f"{row[column].item()} in row {int(bad[0])} at {place}; "
            "drop or fill these rows (values beyond the range of the float type count as infinite)"
        )
    return tensor


def labels(y: Any, count: int, what: str = "y") -> Tensor:
    """[N] int64 from whole numbers, one per sample, none negative."""
    array = as_array(y, what)
    if array.ndim != 1:
        raise DataError(
            f"{what} must be one whole number per sample, got shape {array.shape}; from one-hot: y.argmax(1)"
        )
    if len(array) != count:
        raise DataError(f"there are {count} samples but {what} has {len(array)} labels; they must be as many")
    if array.dtype.kind == "f":
        wrong = np.flatnonzero(array != np.floor(array))  # NaN is unequal to itself; infinities come below
        wrong = wrong if len(wrong) else np.flatnonzero(np.isinf(array))
        if len(wrong):
            missing = int(np.isnan(array).sum())
            raise DataError(
                f"{what} must hold whole numbers: {len(wrong)} labels are not ({missing} of them NaN), "
                f"first {array[wrong[0]]} at position {wrong[0]}"
            )
    elif array.dtype.kind not in "bui":
        raise DataError(
            f"{what} must hold whole numbers, got dtype {array.dtype}; number your classes: "
            "names, y = np.unique(y, return_inverse=True), and pass classes=names"
        )
    negative = np.flatnonzero(array < 0)
    if len(negative):
        raise DataError(
            f"{what} has {len(negative)} negative labels, first {array[negative[0]]} at position "
            f"{negative[0]}; classes count from 0"
        )
    return torch.from_numpy(array.astype(np.int64))


def class_names(classes: int | Sequence[str] | None, parts: dict[str, Tensor]) -> tuple[str, ...]:
    """Names of the classes, and the check that all labels lie below their number."""
    largest = max(int(y.max()) for y in parts.values())
    samples = sum(len(y) for y in parts.values())
    if classes is None:
        if largest >= max(1000, samples):
            raise DataError(
                f"the largest label is {largest}, but there are only {samples} samples; number the classes "
                f"from 0, or say classes={largest + 1} if there are really so many"
            )
        classes = largest + 1
    if isinstance(classes, int | np.integer):
        classes = [str(number) for number in range(int(classes))]
    names = tuple(str(name) for name in classes)
    if len(set(names)) != len(names) or not names:
        raise DataError(f"classes must be different names or their number, at least one; got {names[:10]}")
    for what, y in parts.items():
        bad = torch.nonzero(y >= len(names)).flatten()
        if len(bad):
            raise DataError(
                f"{what} has {len(bad)} labels outside 0..{len(names) - 1}, first {int(y[bad[0]])} at "
                f"position {int(bad[0])}; there are {len(names)} classes"
            )
    return names
