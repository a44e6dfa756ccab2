"""An experiment of a paper as values: rows (methods) and columns (a number in a setting), with what was printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from accord.config import RunConfig, from_dict
from accord.papers.numbers import Number
from accord.papers.printed import Printed

Tree = Mapping[str, Any]  # settings nested as in a configuration file
Scale = Literal["full", "short", "smoke"]

# What a smoke test changes of every run: embedded data, two rounds, little work.
SMOKE = (
    "data.name=mnist5k",
    "data.limit=1000",
    "rounds=2",
    "local.batch_size=8",
    "local.steps=2",
    "evaluate.every=1",
)


@dataclass(frozen=True)
class Reading:
    """What a paper leaves open, how it is read here, and why."""

    what: str
    choice: str
    why: str


@dataclass(frozen=True)
class Setting:
    """A federation: data, division, network and local work, shared by all rows of a column."""

    name: str
    title: str
    config: Tree
    short: int  # rounds of --scale short
    readings: Sequence[Reading] = ()
    smoke: Sequence[str] = ()
    needs: str = ""
    accuracy: str = "accuracy"  # the value read as a run's accuracy: a paper may judge by the clients' own data


@dataclass(frozen=True)
class Place:
    """A setting, with what a column changes of it."""

    name: str
    setting: Setting
    change: Tree = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """One number of the runs in a place."""

    key: str
    title: str
    group: str  # the table it stands in
    place: Place
    number: Number
    accuracy: str = "accuracy"  # the setting's, unless the column has its own
    x: float | None = None  # where it lies on the axis of a sweep


@dataclass(frozen=True)
class Row:
    """A method with its settings, and what the paper printed of it in each column."""

    name: str
    title: str
    config: Tree
    printed: Mapping[str, Printed]  # by the column's key
    at: Mapping[str, Tree] = field(default_factory=dict)  # changes, by setting
    only: frozenset[str] = frozenset()  # settings it is part of; empty: all
    smoke: Sequence[str] = ()
    needs: str = ""
    x: float | None = None  # where it lies on the axis, if the rows are the sweep
    accuracy: str = ""  # the value that is read as its accuracy in all columns: a method may have no global model


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of a paper."""

    id: str
    paper: str
    title: str
    what: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    own: str  # the row of the paper's own method
    baseline: str
    figures: Sequence[str] = ()
    text: str = ""  # an honest reading, with placeholders for numbers
    needs: str = ""
    axis: str = ""  # what a sweep's columns, or rows, differ in
    like: str = ""  # the experiment it is another view of: the same rows and columns

    @cached_property
    def places(self) -> list[Place]:
        """Where its runs happen, in the order of the columns."""
        return list({column.place.name: column.place for column in self.columns}.values())

    @cached_property
    def by_importance(self) -> list[Row]:
        """The paper's own method first, then what it is compared with, then the others as they come."""
        rank = {self.own: 0, self.baseline: 1}
        return sorted(self.rows, key=lambda row: rank.get(row.name, 2))

    def row(self, name: str) -> Row:
        """The one of that name."""
        return next(row for row in self.rows if row.name == name)

    def holds(self, row: Row, place: Place) -> bool:
        """Whether a row is part of a place."""
        return not row.only or place.setting.name in row.only

    def obstacle(self, row: Row, place: Place) -> str:
        """Why a row cannot be run yet; empty: it can."""
        return self.needs or row.needs or place.setting.needs

    def config(self, row: Row, place: Place, seed: int, scale: Scale, sets: Sequence[str] = ()) -> RunConfig:
        """One run's configuration, checked; `sets` are the machine's."""
        setting = place.setting
        tree = merged(setting.config, place.change, row.config, row.at.get(setting.name, {}), {"seed": seed})
        if scale == "short":
            tree = merged(tree, {"rounds": min(setting.short, tree["rounds"])})
        small = [*SMOKE, *setting.smoke, *row.smoke] if scale == "smoke" else []
        return from_dict(tree, [*small, *sets], f"{self.id}: {row.name} in {place.name}")


def merged(*trees: Tree) -> dict[str, Any]:
    """Nested dictionaries laid over one another, later ones on top.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
    {'a': {'b': 3, 'c': 2}}
    """
    result: dict[str, Any] = {}
    for tree in trees:
        for key, value in tree.items():
            known = result.get(key)
            both = isinstance(value, Mapping) and isinstance(known, Mapping)
            result[key] = merged(known, value) if both else value  # type: ignore[arg-type]
    return result
