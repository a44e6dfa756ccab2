"""A table's columns as numbers: one rule for the rows a network learns from and for those it is asked about later.

A column is a number, true or false, or a category, which becomes one place per value with a 1 where it is. Rows come as
a data frame, a mapping of columns, a list of mappings, or a two-dimensional array; pandas is not imported here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from accord.errors import DataError, nearest

Values = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Kind = Literal["number", "bool", "category"]

LONGEST = 60  # characters of a cell or a name that a message quotes
SHOWN = 8  # names that a message lists
ROUNDING = 1e-13  # of a mean: a deviation below it is what rounding leaves of a constant


@dataclass(frozen=True)
class Column:
    """How one column becomes numbers; `fill` stands in for a missing value, None: a missing value is refused."""

    name: str
    kind: Kind
    values: tuple[str, ...] = ()  # of a category, in the order of their places
    fill: float | None = None

    @property
    def width(self) -> int:
        """How many numbers it becomes."""
        return len(self.values) if self.kind == "category" else 1

    def encoded(self, values: Any) -> Floats:
        """[N, width]"""
        if self.kind == "category":
            return self._places(vector(values, self.name))
        found = numbers(vector(values, self.name), self.name)
        gaps = np.isnan(found)
        if self.kind == "bool" and not np.isin(found[~gaps], (0, 1)).all():
            odd = found[~gaps & ~np.isin(found, (0, 1))][0]
            raise DataError(f"column {quoted(self.name)} is true or false, and one of its values is {odd:g}")
        if gaps.any():
            if self.fill is None:
                raise DataError(_missing(self.name, gaps))
            found = np.where(gaps, self.fill, found)
        return found[:, None]

    def _places(self, values: Values) -> Floats:
        gaps = gaps_in(values)
        if gaps.any():
            raise DataError(_missing(self.name, gaps))
        place = {value: number for number, value in enumerate(self.values)}
        words = [text(value) for value in values.tolist()]
        strange = sorted({word for word in words if word not in place})
        if strange:
            raise DataError(
                f"column {quoted(self.name)} has values it did not have when the network learnt: {listed(strange)}. "
                f"Known: {listed(self.values)}"
            )
        places = np.zeros((len(words), self.width))
        places[np.arange(len(words)), [place[word] for word in words]] = 1
        return places


def matrix(columns: Sequence[Column], raw: Any) -> Floats:
    """[N, D] all columns beside one another."""
    found = by_name(raw, [column.name for column in columns])
    parts = [column.encoded(found[column.name]) for column in columns]
    if len({len(part) for part in parts}) > 1:
        lengths = ", ".join(f"{quoted(c.name)}: {len(part)}" for c, part in zip(columns, parts, strict=True))
        raise DataError(f"columns differ in length ({cut(lengths)}); every column needs one value per row")
    return np.concatenate(parts, axis=1)


def by_name(raw: Any, names: Sequence[str]) -> dict[str, Any]:
    """The values of each of these columns, of rows in any of the forms above."""
    if is_frame(raw):
        labels: dict[str, list[Any]] = {}
        for label in raw.columns:
            labels.setdefault(str(label), []).append(label)
        _present(names, labels)
        twice = [name for name in names if len(labels[name]) > 1]
        if twice:
            raise DataError(f"columns of the same name: {listed(twice)}; rename all but one of each")
        return {name: raw[labels[name][0]] for name in names}
    if isinstance(raw, Mapping):
        _present(names, raw)
        single = all(isinstance(raw[name], str | bytes) or np.ndim(raw[name]) == 0 for name in names)
        return {name: [raw[name]] if single else raw[name] for name in names}
    if isinstance(raw, list | tuple) and raw and all(isinstance(row, Mapping) for row in raw):
        for row in raw:
            _present(names, row)
        return {name: [row[name] for row in raw] for name in names}
    try:
        array = raw.detach().cpu().numpy() if isinstance(raw, Tensor) else np.asarray(raw)
    except ValueError as error:
        raise DataError(f"rows are no rectangular array ({error}); the columns are {listed(names)}") from error
    if array.ndim != 2 or array.shape[1] != len(names):
        raise DataError(
            f"rows without column names must be [rows, {len(names)}], got shape {array.shape}; the columns are "
            f"{listed(names)}"
        )
    return {name: array[:, place] for place, name in enumerate(names)}


def is_frame(raw: Any) -> bool:
    """Whether it is a data frame, whoever made it."""
    return not isinstance(raw, Mapping) and hasattr(raw, "columns") and hasattr(raw, "shape")


def _present(names: Sequence[str], known: Mapping[str, Any]) -> None:
    absent = [name for name in names if name not in known]
    if absent:
        hint = nearest(absent[0], [str(name) for name in known]) if len(absent) == 1 else ""
        raise DataError(f"there is no column {listed(absent)}.{hint} Columns: {listed(known)}")


def vector(values: Any, name: str) -> Values:
    """[N] of a column, as NumPy has it; what is of no one type keeps its own."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    array = np.asarray(values, dtype=object) if isinstance(values, list | tuple) else np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"column {quoted(name)} must have one value per row, got shape {array.shape}")
    return array


def gaps_in(values: Values) -> npt.NDArray[np.bool_]:
    """[N] where nothing is: None, NaN, or what pandas has for it."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind in "mM":
        return np.isnat(values)
    if values.dtype.kind != "O":
        return np.zeros(len(values), dtype=bool)
    return np.fromiter((is_missing(value) for value in values.tolist()), dtype=bool, count=len(values))


def is_missing(value: object) -> bool:
    """Of one value; pandas' own words for nothing are known by their names, as pandas may not be here."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and value != value


def numbers(values: Values, name: str) -> Floats:
    """[N] with NaN where a value is missing; text and infinities are refused."""
    found = floats(values, name)
    endless = np.flatnonzero(np.isinf(found))
    if len(endless):
        raise DataError(
            f"column {quoted(name)} has {len(endless)} infinite values, first in row {endless[0]}; leave these rows "
            "out or write what was measured"
        )
    return found


def floats(values: Values, name: str) -> Floats:
    """[N] as `numbers`, infinities as they are."""
    if values.dtype.kind in "buif":
        return values.astype(np.float64)
    return np.fromiter(
        (_number(value, name, row) for row, value in enumerate(values.tolist())), dtype=np.float64, count=len(values)
    )


def _number(value: object, name: str, row: int) -> float:
    if is_missing(value) or value == "":
        return float("nan")
    if isinstance(value, str):  # as a reader of CSV files gives it that knows no types
        with contextlib.suppress(ValueError):
            return float(value)
    if isinstance(value, bool | int | float | np.bool_ | np.number | Decimal) and not isinstance(
        value, np.complexfloating
    ):
        try:
            return float(value)
        except OverflowError:
            return float("inf")
    raise DataError(f"column {quoted(name)} must hold numbers, and row {row} has {quoted(value)}")


def text(value: object) -> str:
    """A category's or a site's name: 3, 3.0 and np.int64(3) are the same one."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else str(value)


def quoted(value: object) -> str:
    """As a message shows it, however long it is."""
    return repr(cut(value)) if isinstance(value, str) else cut(repr(value))


def cut(words: str) -> str:
    """As much as a message quotes."""
    return words if len(words) <= LONGEST else words[: LONGEST - 3] + "..."


def listed(names: Any) -> str:
    """Some names, and how many more there are."""
    return _some([quoted(str(name)) for name in names])


def counted(found: Mapping[str, int]) -> str:
    """Names with their numbers."""
    return _some([f"{quoted(name)} ({count})" for name, count in found.items()])


def _some(words: Sequence[str]) -> str:
    return ", ".join(words[:SHOWN]) + (f" and {len(words) - SHOWN} more" if len(words) > SHOWN else "")


def name_at(columns: Sequence[Column], place: int) -> str:
    """Whose column of the matrix this is; a category has several."""
    return [column.name for column in columns for _ in range(column.width)][place]


def too_large(name: str) -> str:
    """Of a column with finite numbers that the float type cannot hold, or whose deviation it cannot."""
    return f"column {quoted(name)} has numbers too large to compute with: write them in a larger unit"


def _missing(name: str, gaps: npt.NDArray[np.bool_]) -> str:
    return (
        f"column {quoted(name)} has {int(gaps.sum())} missing values, first in row {int(np.argmax(gaps))}; fill them "
        "in or leave these rows out"
    )
