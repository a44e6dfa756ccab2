"""Which runs an experiment comes to, the most informative ones first, and which of them are still missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from accord.config import RunConfig, to_dict
from accord.engine.folder import read_config
from accord.errors import AccordError, ConfigError, nearest
from accord.papers.experiment import Experiment, Place, Row, Scale
from accord.papers.records import Records, question
from accord.study.entry import Entry
from accord.wire.writing import digest

# What `--set` may change: the machine's part of a configuration, which no table asks for.
FREE = (
    *("executor", "workers", "precision", "channels_last", "compile", "evaluate.batch_size"),
    *("data.dir", "data.download", "checkpoint.", "log."),
)


@dataclass(frozen=True)
class Wanted:
    """One run: a row in a place with a seed."""

    experiment: Experiment
    row: Row
    place: Place
    config: RunConfig  # without its folder

    @property
    def label(self) -> str:
        """What is printed about it."""
        return f"{self.row.name} in {self.place.name}, seed {self.config.seed}"

    @cached_property
    def question(self) -> str:
        """What its record must answer."""
        return question(self.config)

    def entry(self, runs: Path) -> Entry:
        """Where it lies below `runs`: experiments that ask for the same run share its folder."""
        asked = digest({"question": self.question, "rounds": self.config.rounds, **_looked_at(self.config)})
        name = f"{self.config.algorithm.name}-seed{self.config.seed}-{asked[:10]}"
        return Entry(replace(self.config, out=str(runs / self.place.setting.name), name=name), self.row.name)

    def record_path(self, results: Path) -> Path:
        """Where its record is kept."""
        several = len(self.experiment.places) > 1
        place = f"{self.place.name}-" if several else ""
        return results / self.experiment.id / f"{place}{self.row.name}-seed{self.config.seed}.json"

    @property
    def labels(self) -> dict[str, Any]:
        """What its record says of where it belongs."""
        return {"experiment": self.experiment.id, "row": self.row.name, "place": self.place.name}


def _looked_at(config: RunConfig) -> dict[str, Any]:
    return {"evaluate": {name: value for name, value in to_dict(config)["evaluate"].items() if name != "batch_size"}}


def wanted(
    experiment: Experiment,
    seeds: Sequence[int],
    scale: Scale,
    rows: Sequence[str] = (),
    sets: Sequence[str] = (),
    places: Sequence[str] = (),
) -> list[Wanted]:
    """All runs that can be run: of the first seed before those of the next, the paper's own method before the others.

    A smoke test takes the first place alone: all of them are the same digits there.
    """
    _check_names(experiment, "row", rows, [row.name for row in experiment.rows])
    _check_names(experiment, "place", places, [place.name for place in experiment.places])
    chosen_places = [place for place in experiment.places if not places or place.name in places]
    if scale == "smoke":
        chosen_places = chosen_places[:1]
    chosen_rows = [row for row in experiment.by_importance if not rows or row.name in rows]
    if not any(experiment.holds(row, place) for row in chosen_rows for place in chosen_places):
        named = (", ".join(one.name for one in some) for some in (chosen_rows, chosen_places))
        raise ConfigError("{}: no row of {} is part of {}; see its table for which are".format(experiment.id, *named))
    found: dict[tuple[str, int], Wanted] = {}
    for seed in seeds:
        for row in chosen_rows:
            for place in chosen_places:
                if experiment.holds(row, place) and not experiment.obstacle(row, place):
                    one = Wanted(experiment, row, place, experiment.config(row, place, seed, scale, sets))
                    found.setdefault((one.question, seed), one)
    return list(found.values())


def missing(runs: Sequence[Wanted], records: Records) -> list[Wanted]:
    """Those of which no record goes to the last round and shows what is asked for."""
    left = []
    for one in runs:
        record = records.find(one.config)
        if record is None or not (record.complete(one.config.rounds) and record.shows(one.config)):
            left.append(one)
    return left


def _check_names(experiment: Experiment, what: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(
                f"{experiment.id} has no {what} {name!r}.{nearest(name, known)} Allowed: {', '.join(known)}."
            )


def kept(entry: Entry) -> list[str]:
    """The machine's settings that a run goes on with, as it was begun with them, though others are asked for now."""
    if not entry.begun:
        return []
    try:
        known = read_config(entry.folder)
    except AccordError:  # the run itself says so when it is resumed
        return []
    begun, asked = (dict(flat(to_dict(config))) for config in (known, entry.config))
    return [f"{key}={value}" for key, value in begun.items() if is_free(key) and asked.get(key) != value]


def flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Settings as the command line has them, name and value.

    >>> dict(flat({"data": {"name": "mnist", "download": False}, "rounds": 3}))
    {'data.name': 'mnist', 'data.download': 'false', 'rounds': '3'}
    """
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", str(value).lower() if isinstance(value, bool) else str(value)


def is_free(key: str) -> bool:
    """Whether `--set` may change it."""
    return any(key == free or (free.endswith(".") and key.startswith(free)) for free in FREE)


def check_free(sets: Sequence[str]) -> None:
    """Refuse changes that would make a run another one than the experiment's."""
    for text in sets:
        key = text.partition("=")[0].strip()
        if not is_free(key):
            allowed = ", ".join(free + "..." if free.endswith(".") else free for free in FREE)
            raise ConfigError(f"--set {text}: {key} belongs to the experiment; only the machine's settings: {allowed}")


def for_machine(device: str, one_core: bool) -> list[str]:
    """How runs are carried out there: on a GPU side by side and compiled, else on one core each or on all."""
    if device == "auto":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        gpu = ["executor=batched", "precision=tf32", "compile=true", "checkpoint.memory_limit_mb=16000"]
        return ["device=cuda", *gpu, "checkpoint.every=20", "checkpoint.keep=1"]
    cpu = ["device=cpu", "executor=sequential" if one_core else "executor=auto"]
    return [*cpu, "checkpoint.every=5", "checkpoint.keep=1"]
