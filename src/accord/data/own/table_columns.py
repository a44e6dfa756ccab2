"""What the columns of a table are: numbers, true or false, categories; and what is refused until it is explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from accord.data.columns import (
    ROUNDING,
    Column,
    Floats,
    Values,
    counted,
    floats,
    gaps_in,
    is_missing,
    listed,
    matrix,
    name_at,
    numbers,
    quoted,
    text,
    too_large,
)
from accord.data.inputs import Inputs
from accord.data.own.sites import in_order
from accord.errors import DataError

Rows = Mapping[str, Values]  # the columns of some rows


def kinds_of(rows: Any, parts: Sequence[Rows], chosen: Sequence[str], categorical: Sequence[str]) -> list[Column]:
    """What every column is; those that are words or dates are named in one message."""
    declared = {str(column): getattr(rows[column].dtype, "categories", None) for column in rows.columns}
    kinds: list[Column] = []
    words: list[str] = []
    dates: list[str] = []
    for name in chosen:
        values = parts[0][name]
        if declared[name] is not None or name in categorical:
            kinds.append(Column(name, "category", _places(name, declared[name], [p[name] for p in parts])))
            continue
        kind = kind_of(values)
        if kind in ("number", "bool"):
            for part in parts:
                numbers(part[name], name)  # refuses what is endless, or text in another table
            kinds.append(Column(name, "bool" if kind == "bool" else "number"))
        else:
            (dates if kind == "date" else words).append(name)
    if dates:
        raise DataError(
            f"columns of dates or times: {listed(dates)}. Make numbers of them (days since a first date, the year), or "
            "leave them out by naming the other features"
        )
    if words:
        present = (value for value in parts[0][words[0]].tolist() if not is_missing(value))
        first = next(value for value in present if not isinstance(value, int | float))
        raise DataError(
            f"columns of text: {listed(words)} (such as {quoted(first)}). Say categorical={words[:8]} to give every "
            "value a place of its own, make numbers of them, or leave them out by naming the other features"
        )
    return kinds


def kind_of(values: Values) -> str:
    """number, bool, date or text, by what is there and not missing."""
    if values.dtype.kind != "O":
        return {"b": "bool", "u": "number", "i": "number", "f": "number", "M": "date", "m": "date"}.get(
            values.dtype.kind, "text"
        )
    present = [value for value, gap in zip(values.tolist(), gaps_in(values), strict=True) if not gap]
    if present and all(isinstance(value, bool | np.bool_) for value in present):
        return "bool"
    if any(hasattr(value, "isoformat") or hasattr(value, "total_seconds") for value in present):
        return "date"
    try:
        floats(values, "")  # what is endless is a number too, and refused as one
    except DataError:
        return "text"
    return "number"


def _places(name: str, declared: Any, parts: Sequence[Values]) -> tuple[str, ...]:
    """A category's values: those pandas knows of, else those that occur, in order."""
    if declared is not None:
        places = [text(value) for value in declared]
    else:
        every = [value for part in parts for value in part[~gaps_in(part)].tolist()]
        places = in_order({text(value) for value in every})
    if not places or len(set(places)) != len(places):
        raise DataError(f"column {quoted(name)} has no values to make places of, or two that read alike")
    return tuple(places)


def filled(kinds: Sequence[Column], parts: Sequence[Rows], notes: list[str]) -> list[Column]:
    """The columns with what stands in for a missing value: the mean over the training rows, in every column."""
    made, found, words = [], {}, []
    for column in kinds:
        if column.kind == "category":
            words += [column.name] if any(gaps_in(part[column.name]).any() for part in parts) else []
            made.append(column)
            continue
        values = [numbers(part[column.name], column.name) for part in parts]
        known = values[0][~np.isnan(values[0])]
        if not len(known):
            raise DataError(f"column {quoted(column.name)} has no value in any training row; leave it out")
        made.append(replace(column, fill=float(known.mean())))
        count = sum(int(np.isnan(some).sum()) for some in values)  # a number that is spelt '' is missing too
        if count:
            found[column.name] = count
    if words:
        raise DataError(
            f"categories have no mean, and values are missing in {listed(words)}: give them a word of their own, such "
            "as frame.fillna('unknown'), or say missing='drop'"
        )
    if found:
        notes.append(f"missing values filled with the training rows' mean: {counted(found)}")
    return made


def inputs_of(columns: Sequence[Column], train: Rows, normalise: bool) -> Inputs:
    """The columns, and the moments of those that are numbers; what is 0 or 1 stays so."""
    width = sum(column.width for column in columns)
    if not normalise:
        return Inputs("table", (width,), columns=tuple(columns))
    values: Floats = matrix(columns, train)
    number = np.concatenate([np.full(column.width, column.kind == "number") for column in columns])
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = values.mean(axis=0), values.std(axis=0)
    if not np.isfinite(std).all():
        raise DataError(too_large(name_at(columns, int(np.argmin(np.isfinite(std))))))
    mean, std = np.where(number, mean, 0.0), np.where(number & (std > ROUNDING * np.abs(mean)), std, 1.0)
    return Inputs("table", (width,), tuple(mean.tolist()), tuple(std.tolist()), tuple(columns))
