"""A measure, and where all of them are found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from accord.measures.column import Column
from accord.measures.predictions import Vector
from accord.measures.scene import Final, Moment, Scene
from accord.settings import Registry, Setting

Record = dict[str, Any]


class Measure:
    """Something that is measured. Override what is needed; it keeps nothing between calls."""

    name: str
    setting: Setting | None = None  # its key in [evaluate]; None: it is always measured
    columns: tuple[Column, ...] = ()
    reads: frozenset[str] = frozenset()  # what it wants kept of the predictions: "logits", "features"
    every_round = False  # read from the replies, also in rounds that are not evaluated
    at_clients = False  # measured by the clients, on their own test data

    def on(self, scene: Scene) -> bool:
        """Whether the run asks for it."""
        return self.setting is None or bool(scene.settings.get(self.setting.name, self.setting.default))

    def check(self, scene: Scene) -> None:
        """Refuse before the first round what could not be measured."""

    def round(self, scene: Scene, moment: Moment) -> Record:
        """What it adds to an evaluated round's line of metrics.jsonl."""
        return {}

    def end(self, scene: Scene, final: Final) -> Record:
        """What is measured once, after the last round; it goes to summary.json."""
        return {}

    def sites(self, scene: Scene, final: Final) -> dict[str, Vector]:
        """Columns of the table of sites: a number per client [K], NaN where there is none."""
        return {}

    def summary(self, scene: Scene, records: Sequence[Mapping[str, Any]]) -> Record:
        """What it adds to summary.json from all rounds' records: the last value of its own name."""
        values = [record[self.name] for record in records if self.name in record]
        return {self.name: values[-1]} if values else {}


MEASURES: Registry[Measure] = Registry("measure", home="accord.measures")

M = TypeVar("M", bound=type[Measure])


def entry(kind: M) -> M:
    """Class decorator: the measure is registered under its name."""
    MEASURES.add(kind.name)(kind())
    return kind


def switch(key: str, doc: str, default: bool = False) -> Setting:
    """The setting of a measure that is on or off."""
    return Setting(key, bool, default, doc=doc)
