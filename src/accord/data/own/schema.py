"""What the tables of several sites agree on, without anybody's rows leaving their site.

Each site summarises its own table: which columns it has, their values if they are categories, mean and variance if they
are numbers, and its classes (`Summary`, `summarise` in `summaries.py`). All summaries together make a `Schema`, which
every site prepares its rows by: the same columns in the same order, the same classes, the same moments.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from accord.data.columns import ROUNDING, Column, Kind, listed, quoted
from accord.data.inputs import Inputs
from accord.data.own.sites import in_order
from accord.errors import ConfigError, DataError, RunError

FORMAT = 1
LARGEST = 1 << 24  # bytes of a file
HEAD: dict[str, type | tuple[type, ...]] = {"format": int, "label": str, "problem": str, "classes": list}
COLUMN: dict[str, type | tuple[type, ...]] = {"name": str, "kind": str, "values": list, "known": int}
COLUMN |= {"mean": (int, float), "variance": (int, float)}


@dataclass(frozen=True)
class Schema:
    """How every site's rows become numbers, and what is learned of them."""

    label: str
    problem: str
    classes: tuple[str, ...]  # of a regression the label's own name
    inputs: Inputs

    def roles(
        self, label: str, features: Sequence[str] | None, categorical: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """The columns to learn from, and those of them that are categories; what is said otherwise must be the same."""
        known = [column.name for column in self.inputs.columns]
        words = [column.name for column in self.inputs.columns if column.kind == "category"]
        if label != self.label:
            raise DataError(f"the schema predicts {quoted(self.label)}, not {quoted(label)}")
        if features and list(features) != known:
            raise DataError(f"the schema learns from {listed(known)}: leave `features` out, or name the same")
        if categorical and set(categorical) != set(words):
            raise DataError(f"the schema has the categories {listed(words)}: leave `categorical` out")
        return known, words

    def prepares(self, normalise: bool) -> Inputs:
        """With or without the moments."""
        return self.inputs if normalise else replace(self.inputs, mean=(), std=())

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        said = {"format": FORMAT, "label": self.label, "problem": self.problem, "classes": list(self.classes)}
        return {**said, "inputs": self.inputs.to_json()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any], what: str) -> Schema:
        """What `to_json` gave; anything else is a DataError."""
        _check(record, {**HEAD, "inputs": dict}, what)
        classes = tuple(record["classes"])
        if not classes or len(set(classes)) != len(classes):
            raise DataError(f"{what} names no classes, or one twice")
        return cls(record["label"], record["problem"], classes, Inputs.from_json(record["inputs"]))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Schema:
        """From its file."""
        return cls.from_json(read_json(Path(path)), f"the schema {path}")


@dataclass(frozen=True)
class ColumnSummary:
    """One column of a site's training rows; moments are those of a number's values that are not missing."""

    name: str
    kind: str
    values: tuple[str, ...] = ()
    known: int = 0
    mean: float = 0.0
    variance: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**self.__dict__, "values": list(self.values)}


@dataclass(frozen=True)
class Summary:
    """What one site says of its table; nothing else of it leaves the site for the schema."""

    label: str
    problem: str
    classes: tuple[str, ...]
    columns: tuple[ColumnSummary, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        said = {"format": FORMAT, "label": self.label, "problem": self.problem, "classes": list(self.classes)}
        return {**said, "columns": [column.to_json() for column in self.columns]}

    @classmethod
    def from_json(cls, record: Mapping[str, Any], what: str) -> Summary:
        """What `to_json` gave; anything else is a DataError."""
        _check(record, {**HEAD, "columns": list}, what)
        columns = []
        for column in record["columns"]:
            _check(column, COLUMN, f"a column of {what}")
            if column["kind"] not in get_args(Kind) or not _are_words(column["values"]) or column["known"] < 0:
                raise DataError(f"{what} has a column that is none")
            columns.append(ColumnSummary(**{**column, "values": tuple(column["values"])}))
        return cls(record["label"], record["problem"], tuple(record["classes"]), tuple(columns))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Summary:
        """From its file."""
        return cls.from_json(read_json(Path(path)), f"the summary {path}")


def agree(sites: Mapping[str, Summary]) -> Schema:
    """The schema of all sites' summaries, by the sites' names; DataError where they do not go together."""
    if not sites:
        raise ConfigError("a schema is made of one summary or more")
    (first_site, first), *_ = sites.items()
    names = [column.name for column in first.columns]
    for site, one in sites.items():
        for what, was, now in (
            ("predicts", first.label, one.label),
            ("is for", first.problem, one.problem),
        ):
            if was != now:
                raise DataError(
                    f"{site} {what} {quoted(now)}, {first_site} {quoted(was)}: say --task and --label alike"
                )
        if set(now_names := [column.name for column in one.columns]) != set(names):
            apart = listed(sorted(set(names) ^ set(now_names)))
            raise DataError(f"{site} and {first_site} differ in columns: {apart}. Name those all have with --features")
    merged = [_merged(name, {site: _column(one, name) for site, one in sites.items()}) for name in names]
    columns = tuple(column for column, _, _ in merged)
    width = sum(column.width for column in columns)
    mean = tuple(value for column, value, _ in merged for _ in range(column.width))
    std = tuple(value for column, _, value in merged for _ in range(column.width))
    classes = {word for one in sites.values() for word in one.classes}
    ordered = in_order(classes) if not all(map(_is_number, classes)) else sorted(classes, key=float)
    if first.problem == "classification" and len(ordered) < 2:
        raise DataError(
            f"the label {quoted(first.label)} is {listed(ordered)} at every site: there is nothing to learn"
        )
    return Schema(first.label, first.problem, tuple(ordered), Inputs("table", (width,), mean, std, columns))


def _column(summary: Summary, name: str) -> ColumnSummary:
    return next(column for column in summary.columns if column.name == name)


def _merged(name: str, sites: Mapping[str, ColumnSummary]) -> tuple[Column, float, float]:
    """The column, and what is taken off its numbers."""
    kinds = {one.kind for one in sites.values()}
    if kinds == {"category"}:
        values = in_order({word for one in sites.values() for word in one.values})
        return Column(name, "category", tuple(values)), 0.0, 1.0
    if "category" in kinds:
        which = listed(sorted(site for site, one in sites.items() if one.kind == "category"))
        raise DataError(f"column {quoted(name)} is a category at {which} only: say --categorical {name} everywhere")
    if kinds == {"bool"}:
        return Column(name, "bool"), 0.0, 1.0
    known = sum(one.known for one in sites.values())
    if not known:
        raise DataError(f"column {quoted(name)} has no value at any site; leave it out with --features")
    mean = sum(one.known * one.mean for one in sites.values()) / known
    variance = sum(one.known * (one.variance + (one.mean - mean) ** 2) for one in sites.values()) / known
    deviation = variance**0.5
    return Column(name, "number", fill=mean), mean, deviation if deviation > ROUNDING * abs(mean) else 1.0


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def read_json(path: Path) -> Any:
    """What is in a file that somebody else may have written."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise DataError(f"{path} is larger than {LARGEST >> 20} MB: it is no schema and no summary")
        return json.loads(data)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as JSON: {str(error)[:200]}") from error


def _check(record: Any, fields: Mapping[str, type | tuple[type, ...]], what: str) -> None:
    """DataError unless it has exactly these fields, of these types; and what all of them have in common."""
    if not isinstance(record, dict) or record.keys() != fields.keys():
        raise DataError(f"{what} must have the fields {', '.join(fields)} and no other")
    for name, kind in fields.items():
        value = record[name]
        endless = isinstance(value, float) and not math.isfinite(value)
        if not isinstance(value, kind) or isinstance(value, bool) or endless:
            raise DataError(f"{what}: {name} is {quoted(value)}, which it cannot be")
    if record.get("format", FORMAT) != FORMAT:
        raise DataError(f"{what} is of another version of Accord: make it anew")
    if record.get("problem", "regression") not in ("classification", "regression"):
        raise DataError(f"{what}: the problem must be classification or regression")
    if not _are_words(record.get("classes", [])):
        raise DataError(f"{what}: classes must be a list of words")


def _are_words(given: Sequence[Any]) -> bool:
    return all(isinstance(word, str) for word in given)


def write_json(path: Path, said: Schema | Summary) -> None:
    """A new file; never over another."""
    text = json.dumps(said.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text + "\n")
    except FileExistsError:
        raise ConfigError(f"{path} exists already and is not written over: choose another name") from None
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error
