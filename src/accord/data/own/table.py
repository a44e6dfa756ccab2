"""A table as a data set: a pandas DataFrame, a CSV or a Parquet file with a row per sample.

    dataset = from_table("patients.csv", label="outcome", client="hospital")

Nothing is guessed that changes a result: text columns, missing values and dates are refused until it is said what they
are to become.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from accord.data.columns import Column, Values, by_name, counted, gaps_in, is_frame, listed, quoted, vector
from accord.data.federated import Dataset, Index, Pool
from accord.data.files.tables import check_names, read_table
from accord.data.own.schema import Schema
from accord.data.own.sites import Sites, numbered, site_ids
from accord.data.own.table_columns import filled, inputs_of, kinds_of
from accord.data.own.table_labels import Outcomes, agreed_outcomes, outcomes
from accord.data.splits import stratified
from accord.errors import DataError, nearest

Missing = Literal["error", "mean", "drop"]
Task = Literal["auto", "classification", "regression"]


def from_table(
    table: Any,
    label: str,
    client: str | None = None,
    *,
    features: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    test: Any = None,
    task: Task = "auto",
    missing: Missing = "error",
    normalise: bool = True,
    test_fraction: float = 0.2,
    seed: int = 0,
    separator: str | None = None,
    name: str | None = None,
    schema: Schema | str | os.PathLike[str] | None = None,
) -> Dataset:
    """A data set from a table with a row per sample.

    Args:
        table: a pandas DataFrame, or the path of a CSV or Parquet file.
        label: the column to be predicted: words, true or false, or whole numbers are classes, other numbers amounts.
        client: the column that says whose sample it is (a hospital, a shop); its values are the clients' names.
        features: the columns to learn from; all others but label and client if not given. Numbers, true or false,
            pandas categories, and columns named in `categorical`.
        categorical: columns of words or codes to be made one place per value.
        test: a table for testing, of the same form; if not given, `test_fraction` of each client is set aside, spread
            over its classes and drawn with `seed`.
        task: classification or regression; `auto` takes numbers with fractions for amounts and the rest for classes.
        missing: what is done about missing values: refuse them, fill numbers with the column's mean over the training
            rows, or drop the rows. What was done is in the data set's note.
        normalise: subtract the training rows' mean from every number and divide by its standard deviation.
        separator: of a CSV file's fields.
        name: what results call the data set; the file's name if not given.
        schema: what several sites' tables have agreed on (`data/own/schema.py`), or its file: features, categories,
            classes and moments are then those of the schema.
    """
    agreed = None if schema is None else schema if isinstance(schema, Schema) else Schema.read(schema)
    if agreed is not None:
        features, categorical = agreed.roles(label, features, categorical)
    categorical = _names(categorical, "categorical")
    rows = _read(table, separator, [*categorical, *([client] if client else [])], "the table")
    other = None if test is None else _read(test, separator, [*categorical, *([client] if client else [])], "test")
    _check_choices(task, missing)
    chosen = _features(rows, label, client, features, categorical)
    notes: list[str] = []
    first = _part(rows, chosen, label, client, missing, notes, "")
    second = None
    if other is not None:
        there = client if client is not None and client in map(str, other.columns) else None
        second = _part(other, chosen, label, there, missing, notes, "test ")
    tables = [first.features, *([second.features] if second else [])]
    labels = [first.label, *([second.label] if second else [])]
    if agreed is None:
        kinds, found = kinds_of(rows, tables, chosen, categorical), outcomes(labels, label, task)
    else:
        kinds, found = list(agreed.inputs.columns), agreed_outcomes(labels, label, agreed.problem, agreed.classes)
    y = found.parts
    sites = None
    if first.owners is not None:
        sites = numbered(first.owners, second.owners if second else None)
        if second is None:
            notes += _lonely(sites)
    ids: tuple[Index | None, Index | None]
    if second is None:
        train, held = _split(found, sites, test_fraction, seed)
        parts, targets = (first.at(train), first.at(held)), (y[0][train], y[0][held])
        ids = (None, None) if sites is None else (sites.train[train], sites.train[held])
    else:
        parts, targets = (first, second), (y[0], y[1])
        ids = (None, None) if sites is None else (sites.train, sites.test)
    if agreed is None and missing == "mean":
        kinds = filled(kinds, [part.features for part in parts], notes)
    inputs = inputs_of(kinds, parts[0].features, normalise) if agreed is None else agreed.prepares(normalise)
    pools = [Pool(inputs.tensor(part.features), own) for part, own in zip(parts, targets, strict=True)]
    return Dataset(
        name or _called(table),
        pools[0],
        pools[1],
        found.names,
        train_clients=ids[0],
        test_clients=ids[1],
        client_names=() if sites is None else sites.names,
        note="; ".join(notes),
        problem=found.problem,
        raw=inputs,
    )


def training_rows(
    table: Any,
    label: str,
    *,
    features: Sequence[str] | None,
    categorical: Sequence[str],
    task: Task,
    missing: Missing,
    test_fraction: float,
    seed: int,
    separator: str | None,
) -> tuple[Mapping[str, Values], list[Column], Outcomes]:
    """The rows one site trains on, what its columns are, and its labels: what a summary is made of."""
    categorical = _names(categorical, "categorical")
    rows = _read(table, separator, categorical, "the table")
    _check_choices(task, missing)
    chosen = _features(rows, label, None, features, categorical)
    part = _part(rows, chosen, label, None, missing, [], "")
    found = outcomes([part.label], label, task, alone=False)
    train, _ = _split(found, None, test_fraction, seed)
    return part.at(train).features, kinds_of(rows, [part.features], chosen, categorical), found


@dataclass(frozen=True)
class _Part:
    """The rows of a table that are used, by their roles."""

    features: Mapping[str, Values]
    label: Values
    owners: list[str] | None

    def at(self, index: Index) -> _Part:
        owners = None if self.owners is None else [self.owners[row] for row in index.tolist()]
        return _Part({name: values[index] for name, values in self.features.items()}, self.label[index], owners)


def _names(given: Sequence[str], what: str) -> list[str]:
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise DataError(f"{what} must be a list of column names, such as [{quoted(given)}]")
    return list(given)


def _check_choices(task: str, missing: str) -> None:
    for given, allowed, what in (
        (task, ("auto", "classification", "regression"), "task"),
        (missing, ("error", "mean", "drop"), "missing"),
    ):
        if given not in allowed:
            raise DataError(f"{what} of a table must be one of {', '.join(allowed)}, not {quoted(given)}")


def _read(table: Any, separator: str | None, as_text: Sequence[str], what: str) -> Any:
    if isinstance(table, str | os.PathLike):
        return read_table(table, as_text, separator)
    if not is_frame(table):
        raise DataError(f"{what} must be a pandas DataFrame or the path of a file, not a {type(table).__name__}")
    check_names([str(column) for column in table.columns], what)
    if not len(table):
        raise DataError(f"{what} has no rows")
    return table


def _called(table: Any) -> str:
    return Path(table).stem if isinstance(table, str | os.PathLike) else "table"


def _features(
    rows: Any, label: str, client: str | None, features: Sequence[str] | None, categorical: Sequence[str]
) -> list[str]:
    known = [str(column) for column in rows.columns]
    for role, column in (("label", label), ("client", client)):
        if column is not None and column not in known:
            raise DataError(
                f"there is no {role} column {quoted(column)}.{nearest(str(column), known)} Columns: {listed(known)}"
            )
    if label == client:
        raise DataError(f"column {quoted(label)} cannot be both label and client")
    chosen = [n for n in known if n not in (label, client)] if features is None else _names(features, "features")
    for role, names in (("features", chosen), ("categorical", categorical)):
        absent = [name for name in names if name not in known]
        if absent:
            hint = nearest(absent[0], known)
            raise DataError(
                f"{role} names columns that are not there: {listed(absent)}.{hint} Columns: {listed(known)}"
            )
    taken = [name for name in chosen if name in (label, client)]
    if taken or len(set(chosen)) != len(chosen):
        raise DataError(f"features names label, client or a column twice: {listed(taken or chosen)}; name others once")
    unused = [name for name in categorical if name not in chosen]
    if unused:
        raise DataError(f"categorical names columns that are no features: {listed(unused)}")
    if not chosen:
        raise DataError(f"there is no column to learn from beside {listed([n for n in (label, client) if n])}")
    return chosen


def _part(
    rows: Any, chosen: Sequence[str], label: str, client: str | None, missing: str, notes: list[str], prefix: str
) -> _Part:
    """The used columns of a table; rows with missing values are left out if that is asked for."""
    roles = [*chosen, label, *([client] if client else [])]
    columns = {name: vector(values, name) for name, values in by_name(rows, roles).items()}
    gaps = {name: gaps_in(values) for name, values in columns.items()}
    found = {name: int(mask.sum()) for name, mask in gaps.items() if mask.any()}
    if found and missing == "drop":
        kept = np.flatnonzero(~np.any(list(gaps.values()), axis=0))
        if not len(kept):
            raise DataError(f"every {prefix}row has a missing value ({counted(found)}): nothing is left")
        columns = {name: values[kept] for name, values in columns.items()}
        notes.append(
            f"{len(rows) - len(kept)} of {len(rows)} {prefix}rows left out, with values missing in {counted(found)}"
        )
        found = {}
    needed = [name for name in (label, client) if name in found]
    if needed:
        raise DataError(
            f"{prefix}column {quoted(needed[0])} has {found[needed[0]]} missing values, first in row "
            f"{int(np.argmax(gaps[needed[0]]))}: a row needs its label and client. Leave these rows out yourself, or "
            "with missing='drop'"
        )
    if found and missing == "error":
        raise DataError(
            f"{prefix}rows have missing values: {counted(found)}. Fill them in, or say missing='mean' (numbers get "
            "the mean of the training rows) or missing='drop' (such rows are left out)"
        )
    count = len(columns[label])
    owners = site_ids(columns[client], count, f"{prefix}column {client!r}") if client else None
    return _Part({name: columns[name] for name in chosen}, columns[label], owners)


def _split(found: Outcomes, sites: Sites | None, fraction: float, seed: int) -> tuple[Index, Index]:
    """Rows to keep and rows for testing: of each client, or else of each class, and spread over the labels."""
    rng, y = np.random.default_rng(seed), found.parts[0].numpy()
    if sites is None and found.problem == "classification":
        return stratified(y, fraction, rng)
    owners = np.zeros(len(y), dtype=np.int64) if sites is None else sites.train
    return stratified(owners, fraction, rng, spread=np.unique(y, return_inverse=True)[1])


def _lonely(sites: Sites) -> list[str]:
    """A remark on clients with a single sample, which cannot be divided."""
    alone = [sites.names[client] for client in np.flatnonzero(np.bincount(sites.train) == 1).tolist()]
    return [f"{len(alone)} clients have a single sample, which is not tested: {listed(alone)}"] if alone else []
