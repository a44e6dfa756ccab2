"""How a raw sample becomes what the network sees: pixels, arrays, token ids, or a table's rows.

It is data that JSON can hold, so that a trained network takes the same inputs in another house: nothing here needs the
code that trains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from accord.core.tensors import normalised
from accord.data.columns import Column, Floats, Kind, matrix, name_at, too_large
from accord.errors import DataError

Form = Literal["image", "array", "tokens", "table"]
LARGEST = 1 << 31  # numbers in one sample; no network takes more
MOST = 1 << 20  # columns of a table, or values of a category


@dataclass(frozen=True)
class Inputs:
    """What a sample is, its shape, and the moments that are taken off it.

    | kind | a raw sample | what is done |
    |---|---|---|
    | `image` | bytes, channels first | divided by 255, then `(x - mean) / std` of each channel |
    | `array` | numbers | `(x - mean) / std` along the axis after the samples |
    | `tokens` | whole numbers | nothing |
    | `table` | a row, by its columns' names | each column as it says, then `(x - mean) / std` of each number |
    """

    kind: Form
    shape: tuple[int, ...]  # of one sample as the network sees it
    mean: tuple[float, ...] = ()  # empty: nothing is taken off
    std: tuple[float, ...] = ()
    columns: tuple[Column, ...] = ()  # of a table

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def of(cls, x: Tensor, mean: tuple[float, ...] = (), std: tuple[float, ...] = ()) -> Inputs:
        """Of samples [N, ...] as a pool holds them: bytes are pixels, other whole numbers are token ids."""
        whole = not (x.dtype.is_floating_point or x.dtype.is_complex)
        kind: Form = "image" if x.dtype == torch.uint8 else "tokens" if whole else "array"
        return cls(kind, tuple(x.shape[1:]), mean, std)

    def tensor(self, raw: Any) -> Tensor:
        """[N, ...] what the network sees of N raw samples."""
        if self.kind == "table":
            return self._table(raw)
        array = _numbers(raw)
        if self.kind == "image" and array.ndim == 3 and self.shape[0] == 1:
            array = array[:, None]  # grey pictures need no axis of channels
        if tuple(array.shape[1:]) != self.shape:
            raise DataError(
                f"samples must be [N, {', '.join(map(str, self.shape))}], got shape {tuple(array.shape)}"
                + ("; one sample: x[None]" if tuple(array.shape) == self.shape else "")
            )
        if self.kind == "tokens":
            return torch.from_numpy(_whole(array, "token ids").astype(np.int64))
        if self.kind == "image":
            pixels = _whole(array, "pixels")
            if pixels.size and (pixels.min() < 0 or pixels.max() > 255):
                raise DataError(f"pixels must lie in 0..255, got {pixels.min()} to {pixels.max()}")
            x = torch.from_numpy(pixels.astype(np.uint8)).to(torch.get_default_dtype()).div_(255)
        else:
            if array.dtype.kind not in "buif" or not np.isfinite(array).all():
                raise DataError("samples must be finite numbers; fill in or leave out those that are not")
            x = torch.from_numpy(np.array(array, dtype=np.float64)).to(torch.get_default_dtype())
        return normalised(x, self.mean, self.std)

    def _table(self, raw: Any) -> Tensor:
        found: Floats = matrix(self.columns, raw)
        if self.mean:  # in double precision: years and identity numbers would lose their last digits
            found = (found - np.array(self.mean)) / np.array(self.std)
        tensor = torch.from_numpy(found).to(torch.get_default_dtype())
        lost = torch.nonzero(~torch.isfinite(tensor).all(0))
        if len(lost):
            raise DataError(too_large(name_at(self.columns, int(lost[0]))))
        return tensor

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "kind": self.kind,
            "shape": list(self.shape),
            "mean": list(self.mean),
            "std": list(self.std),
            "columns": [
                {"name": c.name, "kind": c.kind, "values": list(c.values), "fill": c.fill} for c in self.columns
            ],
        }

    @classmethod
    def from_json(cls, record: object) -> Inputs:
        """What `to_json` gave; anything else is a DataError."""
        given = _record(record, {"kind", "shape", "mean", "std", "columns"}, "inputs")
        columns = [_record(c, {"name", "kind", "values", "fill"}, "a column") for c in _list(given, "columns", MOST)]
        return cls(
            given["kind"],
            tuple(_list(given, "shape", 16)),
            tuple(_list(given, "mean", MOST)),
            tuple(_list(given, "std", MOST)),
            tuple(Column(c["name"], c["kind"], tuple(_list(c, "values", MOST)), c["fill"]) for c in columns),
        )


def _numbers(raw: Any) -> np.ndarray[Any, Any]:
    try:
        return raw.detach().cpu().numpy() if isinstance(raw, Tensor) else np.asarray(raw)
    except (TypeError, ValueError) as error:
        raise DataError(f"samples are no rectangular array ({error}); all need the same shape") from error


def _whole(array: np.ndarray[Any, Any], what: str) -> np.ndarray[Any, Any]:
    if array.dtype.kind not in "ui":
        raise DataError(f"{what} must be whole numbers, got dtype {array.dtype}")
    return array


def _record(record: object, keys: set[str], what: str) -> Mapping[str, Any]:
    if not isinstance(record, Mapping) or set(record) != keys:
        raise DataError(f"{what} must have the keys {', '.join(sorted(keys))} and no other")
    return record


def _list(record: Mapping[str, Any], key: str, most: int) -> list[Any]:
    value = record[key]
    if not isinstance(value, list) or len(value) > most:
        raise DataError(f"{key} of the inputs must be a list of at most {most} entries")
    return value


def _check(inputs: Inputs) -> None:
    """Everything a file could have wrong."""
    if inputs.kind not in get_args(Form):
        raise DataError(f"inputs must be one of {', '.join(get_args(Form))}, not {str(inputs.kind)[:40]!r}")
    sizes = inputs.shape
    if not sizes or any(type(size) is not int or size < 1 for size in sizes) or math.prod(sizes) > LARGEST:
        raise DataError("the shape of a sample must be whole numbers of at least 1, and not too many of them")
    if any(type(value) not in (int, float) or not math.isfinite(value) for value in (*inputs.mean, *inputs.std)):
        raise DataError("mean and std of the inputs must be finite numbers")
    if len(inputs.mean) != len(inputs.std) or any(value <= 0 for value in inputs.std):
        raise DataError("mean and std of the inputs must be as many, and every std above 0")
    if inputs.mean and (inputs.kind == "tokens" or len(inputs.mean) != sizes[0]):
        raise DataError(f"{len(inputs.mean)} means do not fit samples of shape {sizes}")
    for column in inputs.columns:
        _check_column(column)
    names = [column.name for column in inputs.columns]
    if len(set(names)) != len(names):
        raise DataError("two columns of the inputs have the same name")
    width = sum(column.width for column in inputs.columns)
    if (inputs.kind == "table") != bool(names) or (names and sizes != (width,)):
        raise DataError(f"columns that make {width} numbers do not fit {inputs.kind} samples of shape {sizes}")


def _check_column(column: Column) -> None:
    if not isinstance(column.name, str) or column.kind not in get_args(Kind):
        raise DataError(f"a column needs a name, and a kind that is one of {', '.join(get_args(Kind))}")
    words = column.values
    if any(not isinstance(word, str) for word in words) or len(set(words)) != len(words):
        raise DataError(f"the values of column {column.name[:40]!r} must be different words")
    if bool(words) != (column.kind == "category"):
        raise DataError(f"column {column.name[:40]!r}: a category has values, other columns have none")
    fill = column.fill
    if fill is not None and (type(fill) not in (int, float) or not math.isfinite(fill) or column.kind == "category"):
        raise DataError(
            f"column {column.name[:40]!r}: fill must be a finite number or nothing, and nothing for a category"
        )
