"""A site's own summary of its table, from which, with the other sites', a schema is made (`schema.py`)."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accord.data.columns import Column, Values, numbers, too_large
from accord.data.own.schema import ColumnSummary, Summary
from accord.data.own.table import Missing, Task, training_rows
from accord.errors import DataError


def summarise(
    table: str | os.PathLike[str] | Any,
    label: str,
    *,
    features: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    task: Task = "auto",
    missing: Missing = "error",
    test_fraction: float = 0.2,
    seed: int = 0,
    separator: str | None = None,
) -> Summary:
    """Of the training rows, as `from_table` divides them with the same arguments."""
    rows, kinds, found = training_rows(
        table,
        label,
        features=features,
        categorical=categorical,
        task=task,
        missing=missing,
        test_fraction=test_fraction,
        seed=seed,
        separator=separator,
    )
    return Summary(label, found.problem, found.names, tuple(_summary(column, rows) for column in kinds))


def _summary(column: Column, rows: Mapping[str, Values]) -> ColumnSummary:
    if column.kind != "number":
        return ColumnSummary(column.name, column.kind, column.values)
    values = numbers(rows[column.name], column.name)
    known = values[~np.isnan(values)]
    if not len(known):
        return ColumnSummary(column.name, column.kind)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, variance = float(known.mean()), float(known.var())
    if not math.isfinite(variance):
        raise DataError(too_large(column.name))
    return ColumnSummary(column.name, column.kind, (), len(known), mean, variance)
