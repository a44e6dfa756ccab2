"""Thin records of runs, one JSON file each, and how a row of a table finds those that are its own.

A record belongs to a row by its configuration: what changes the result must be the same, what only changes where, how
fast or for how long it was made may differ. So one run serves every table that asks for it, whatever its file's name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from accord.config import RunConfig, from_dict, to_dict
from accord.engine.settled import settled
from accord.errors import AccordError, DataError
from accord.wire.writing import digest

Fields = Mapping[str, Any]

# What does not decide to which row a run belongs: the machine's settings, and what is looked at. Seed and rounds do,
# but a table asks for them by themselves.
_OF_THE_MACHINE = (
    *("out", "name", "executor", "workers", "device", "log", "checkpoint", "precision", "channels_last", "compile"),
    *("targets", "seed", "rounds"),
)
_OF_THE_DATA = ("dir", "download")
# Measures that only some tables and figures ask for: a run without them does not answer those.
LOOKS = (
    *("clients", "drift", "feature_map", "local_on_global"),
    *("local_view", "map", "retrieval", "training", "unseen_epochs"),
)
AT_THE_END = ("feature_map", "local_view", "unseen_epochs")  # those of them that are measured after the last round
OLD = "0.1."  # versions whose clients drew other batches
FIRST = ("evaluations", "rounds", "seed", "seconds")  # what every record has
AWAY = "move it out of the folder of records, or mend it"


def question(config: RunConfig) -> str:
    """The same for two configurations exactly when their runs answer the same question, whatever seed and rounds."""
    # A run's own configuration has nothing left open; the papers' data sets name no clients.
    values = {name: value for name, value in to_dict(settled(config)).items() if name not in _OF_THE_MACHINE}
    values["data"] = {name: value for name, value in values["data"].items() if name not in _OF_THE_DATA}
    values["task"] = "classification" if values["task"] == "auto" else values["task"]  # as all of the papers' are
    values["evaluate"] = {"split": values["evaluate"]["split"]}
    return digest(values)


@dataclass(frozen=True)
class Record:
    """What was kept of a run."""

    path: Path
    fields: Fields = field(repr=False)

    @property
    def seed(self) -> int:
        """Of the run."""
        return int(self.fields["seed"])

    @property
    def rounds_done(self) -> int:
        """How far it came: the last round that was evaluated; 0 if it diverged before any was."""
        evaluations = self.fields["evaluations"]
        return int(evaluations[-1]["round"]) if evaluations else 0

    @property
    def step(self) -> int:
        """How many rounds lie between two evaluations, but for the last."""
        rounds = [one["round"] for one in self.fields["evaluations"]]
        return max((after - before for before, after in pairwise(rounds[:-1])), default=0)

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return bool(self.fields.get("finished"))

    @property
    def broke_off(self) -> str:
        """Why it ended before its end; empty: it did not, or was only stopped."""
        return str(self.fields.get("broke_off", ""))

    @property
    def diverged(self) -> bool:
        """Whether it will never get through its rounds, as its training diverged."""
        return "diverged" in self.broke_off and self.rounds_done < int(self.fields["rounds"])

    @property
    def version(self) -> str:
        """Of Accord."""
        return str(self.fields.get("versions", {}).get("accord", "unknown"))

    @property
    def old(self) -> bool:
        """Whether its numbers are marked: clients draw other batches since."""
        return self.version.startswith(OLD)

    @property
    def seconds(self) -> float:
        """On the clock."""
        return float(self.fields["seconds"])

    @property
    def device_seconds(self) -> float:
        """Of the device: its share where several runs were at work; 0 where that is not known."""
        return float(self.fields.get("gpu_seconds", 0.0))

    @cached_property
    def config(self) -> RunConfig:
        """Of the run, read by this version; ConfigError where it no longer can."""
        if "config" in self.fields:
            return from_dict(self.fields["config"], source=str(self.path))
        return from_dict({}, self.fields["settings"], str(self.path))

    def shows(self, config: RunConfig) -> bool:
        """Whether it was looked at as a configuration asks; after the last round, that is after as many."""
        asked, kept = config.evaluate.options, self.config.evaluate.options
        ends_there = int(self.fields["rounds"]) == config.rounds
        return all(kept.get(name) and (ends_there or name not in AT_THE_END) for name in LOOKS if asked.get(name))

    @property
    def judged_at_its_end(self) -> bool:
        """Whether it holds what is measured after the last round alone."""
        return self.finished and any(self.config.evaluate.options.get(name) for name in AT_THE_END)

    def until(self, rounds: int) -> Record:
        """The same run, seen at an earlier round; itself if it did not get further."""
        if self.rounds_done <= rounds:
            return self
        seen = [one for one in self.fields["evaluations"] if one["round"] <= rounds]
        if not seen:
            return self
        cut = {name: value for name, value in self.fields.items() if name not in ("summary", "broke_off")}
        share = seen[-1]["round"] / self.rounds_done
        costs = {"seconds": share * self.seconds, "gpu_seconds": share * self.device_seconds}
        return Record(self.path, {**cut, **costs, "rounds_done": seen[-1]["round"], "evaluations": seen})

    def complete(self, rounds: int) -> bool:
        """Whether nothing of it is left to do; one stopped between its last round and its end has not been judged."""
        ended = self.finished or bool(self.broke_off) or int(self.fields["rounds"]) > rounds
        return self.diverged or self.rounds_done > rounds or (self.rounds_done == rounds and ended)

    def every(self, rounds: int) -> Record:
        """The same run, looked at no more often: "the last five" evaluations are those of the same rounds for all."""
        evaluations = self.fields["evaluations"]
        seen = [one for one in evaluations if one["round"] % rounds == 0 or one is evaluations[-1]]
        return self if len(seen) == len(evaluations) else Record(self.path, {**self.fields, "evaluations": seen})


def read_record(path: Path) -> Record:
    """One file; DataError if it holds no record."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        missing = [name for name in FIRST if name not in fields]
        if not missing and not (fields["evaluations"] or fields.get("broke_off")):
            missing = ["evaluations"]
        wrong = "" if missing else _wrong(fields)
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as a record: {error}; {AWAY}") from error
    if missing or not ({"config", "settings"} & fields.keys()):
        raise DataError(
            f"{path} is no record of a run: {', '.join(missing) or 'its settings'} are missing in it; {AWAY}"
        )
    if wrong:
        raise DataError(f"{path} is no record of a run: {wrong}; {AWAY}")
    return Record(path, fields)


def _wrong(fields: Fields) -> str:
    """What no run can have left; empty: nothing."""
    evaluations = fields["evaluations"]
    if not isinstance(evaluations, list) or not all(isinstance(one, dict) for one in evaluations):
        return "its evaluations are no list of objects"
    rounds = [one.get("round") for one in evaluations]
    whole = [fields["seed"], fields["rounds"], *rounds]
    if not all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 1 << 63 for one in whole):
        return "its seed, its rounds and the round of each evaluation must be whole numbers"
    if sorted(set(rounds)) != rounds:
        return "the rounds of its evaluations do not rise"
    if not all(_number(fields.get(name, 0.0)) >= 0 for name in ("seconds", "gpu_seconds")):
        return "its seconds must be numbers of at least 0"
    if not all(0 <= _number(one.get("accuracy", 0.0)) <= 1 for one in evaluations):
        return "its accuracies must be numbers from 0 to 1"
    for name in ("config", "versions", "hardware", "summary"):
        if not isinstance(fields.get(name, {}), dict):
            return f"its {name} must be an object"
    known = fields.get("config", {}).get("seed", fields["seed"])
    return "" if known == fields["seed"] else f"it has seed {fields['seed']}, its configuration {known}"


def _number(value: Any) -> float:
    """NaN, which is in no bounds, where it is none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


@dataclass(frozen=True)
class Records:
    """All records of some folders, by what they answer."""

    by_question: Mapping[tuple[str, int], Sequence[Record]]
    unreadable: Mapping[Path, str] = field(default_factory=dict)  # made with settings this version does not have

    @classmethod
    def of(cls, folders: Iterable[Path]) -> Records:
        """Those in `folders` and in folders below."""
        found: dict[tuple[str, int], list[Record]] = {}
        unreadable: dict[Path, str] = {}
        for path in sorted(path for folder in folders for path in folder.rglob("*.json")):
            record = read_record(path)
            try:
                found.setdefault((question(record.config), record.seed), []).append(record)
            except AccordError as error:
                unreadable[path] = str(error)
        return cls(found, unreadable)

    def find(self, config: RunConfig) -> Record | None:
        """The one that says most about a run: one that shows what is asked for, the furthest, of equals the newest
        version, then one that knows the clients' means, then the first by name."""
        known = self.by_question.get((question(config), config.seed), [])

        def worth(record: Record) -> tuple[bool, int, tuple[int, ...], bool]:
            steady = "steady_clients" in (record.fields.get("summary") or {})
            return record.shows(config), record.rounds_done, _ordered(record.version), steady

        return max(known, key=worth, default=None)


def _ordered(version: str) -> tuple[int, ...]:
    """0.10.0 is newer than 0.9.0."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())
