"""Which runs a comparison consists of: every algorithm with every seed, each with its own folder.

The folder's name follows from the settings (and from data and network, where they are given), so that the same
request finds it again; more algorithms or seeds join the same folder, other settings get another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from accord.config import AlgorithmConfig, RunConfig, catalog, config_hash, from_dict, to_dict
from accord.config.load import read_toml
from accord.config.sections import own_settings
from accord.engine.files import write_atomic
from accord.errors import ConfigError, nearest
from accord.settings import Setting
from accord.study.checks import check_distinct, check_texts, several, whole
from accord.study.entry import OTHER_NAME, Entry, Run
from accord.study.inputs import Inputs

GIVEN = "given.txt"  # the digest of own data and network, in the folder of a comparison that has them


@dataclass(frozen=True)
class Tuning:
    """How a comparison is tuned: trials for each algorithm, and their rounds (None: as many as the runs have)."""

    trials: int
    rounds: int | None = None

    def __post_init__(self) -> None:
        if whole(self.trials, "trials of an algorithm") < 2:
            raise ConfigError(
                f"trials of an algorithm: must be at least 2, not {self.trials}; the first is the settings as they are"
            )
        if self.rounds is not None and whole(self.rounds, "rounds of a trial") < 1:
            raise ConfigError(f"rounds of a trial: must be at least 1, not {self.rounds}")


@dataclass(frozen=True)
class Comparison:
    """What was asked for, checked when it is made; nothing is written."""

    source: Path | str | RunConfig | None  # the settings common to all runs; None: the defaults
    sets: Sequence[str]
    algorithms: Sequence[str]
    seeds: Sequence[int]
    tuning: Tuning | None = None
    inputs: Inputs = field(default_factory=Inputs)

    def __post_init__(self) -> None:
        for name in ("sets", "algorithms", "seeds"):
            object.__setattr__(self, name, several(getattr(self, name), name))
        for name in ("sets", "algorithms"):
            check_texts(getattr(self, name), name)
        about = [text for text in self.sets if _key(text).startswith("data.") or _key(text) == "task"]
        named = from_dict({key: value for key, value in self._given.items() if key in ("data", "task")}, about)
        object.__setattr__(self, "inputs", self.inputs.with_files_of(named))
        if any(whole(seed, "seeds") < 0 for seed in self.seeds):
            raise ConfigError(f"seeds: must be at least 0, not {min(self.seeds)}")
        check_distinct(self.algorithms, "algorithms")
        check_distinct(self.seeds, "seeds")
        for key, instead in (("algorithm.name", "algorithms"), ("seed", "seeds")):
            if key in self.fixed:
                raise ConfigError(f"{key} has no place among the sets of a comparison: use --{instead} ({instead}=...)")
        known = {f"algorithm.{key}" for name in self.algorithms for key in self.settings[name]}
        for key in self._own:
            if key not in known:
                allowed = ", ".join(sorted(known)) or "none"
                raise ConfigError(f"{key}: none of {', '.join(self.algorithms)} has this setting. Allowed: {allowed}.")
        for algorithm in self.algorithms:
            for seed in self.seeds:
                self.config(algorithm, seed)

    @cached_property
    def settings(self) -> Mapping[str, Mapping[str, Setting]]:
        """Each algorithm's own settings."""
        registry = catalog.registry("algorithm")
        unknown = [name for name in self.algorithms if name not in registry]
        if unknown:
            hints = "".join(f" {name!r}:{hint}" for name in unknown if (hint := nearest(name, registry)))
            raise ConfigError(
                f"algorithms: unknown {', '.join(map(repr, unknown))}.{hints} Allowed: {', '.join(registry)}."
            )
        return {name: own_settings(AlgorithmConfig, registry[name]) for name in self.algorithms}

    @cached_property
    def fixed(self) -> frozenset[str]:
        """The keys of `sets`."""
        return frozenset(map(_key, self.sets))

    @cached_property
    def _own(self) -> list[str]:
        return sorted(key for key in self.fixed if key.startswith("algorithm."))

    @cached_property
    def _given(self) -> Mapping[str, Any]:
        """The common settings, read once: a file may be edited while a comparison takes its hours."""
        if isinstance(self.source, RunConfig):
            return to_dict(self.source)
        return read_toml(Path(self.source)) if self.source is not None else {}

    def config(self, algorithm: str, seed: int, more: Sequence[str] = ()) -> RunConfig:
        """One run's configuration; a setting such as algorithm.mu goes to those that have it."""
        known = {f"algorithm.{key}" for key in self.settings[algorithm]}
        fitting = [text for text in self.sets if not _key(text).startswith("algorithm.") or _key(text) in known]
        file = "" if self.source is None or isinstance(self.source, RunConfig) else str(self.source)
        config = from_dict(self._given, [*fitting, f"algorithm.name={algorithm}", f"seed={seed}", *more], file)
        return self.inputs.settled(config)

    @cached_property
    def folder(self) -> Path:
        """Where all of it lies."""
        first = self.config(self.algorithms[0], self.seeds[0])
        return Path(first.out) / (first.name or f"compare-{self._digest(first)}")

    def entries(self, chosen: Mapping[str, Sequence[str]] | None = None) -> list[Entry]:
        """All runs, with the settings that were `chosen` for each algorithm; folders that hold something else are
        refused.
        """
        entries = []
        for algorithm in self.algorithms:
            for seed in self.seeds:
                config = self.config(algorithm, seed, (chosen or {}).get(algorithm, ()))
                name = Run(algorithm, seed).folder_name
                entries.append(Entry(replace(config, out=str(self.folder), name=name)))
        self.check_folders(entries)
        return entries

    def check_folders(self, entries: Sequence[Entry]) -> None:
        """Refuse runs made with other settings, other data or another network."""
        for entry in entries:
            entry.check_folder()
        path = self.folder / GIVEN
        known = path.read_text(encoding="utf-8") if path.is_file() else ""
        begun = any(True for place in ("*", "tune/*") for _ in self.folder.glob(f"{place}/config.toml"))
        if begun and known != self.inputs.digest:
            raise ConfigError(
                f"{self.folder} holds runs with other data or another network than the ones given: {OTHER_NAME}, "
                "or move the folder away"
            )

    def claim(self) -> None:
        """Note in the folder, before the first run, which data and network its runs are about to get."""
        if self.inputs.digest:
            write_atomic(self.folder / GIVEN, self.inputs.digest)

    def _digest(self, config: RunConfig) -> str:
        common = config_hash(replace(config, seed=0, algorithm=AlgorithmConfig()))
        of_methods = sorted(text for text in self.sets if _key(text).startswith("algorithm."))
        tuning = [self.tuning.trials, self.tuning.rounds] if self.tuning is not None else []
        given = [self.inputs.digest] if self.inputs.digest else []
        text = json.dumps([common, self._algorithm_section(), of_methods, *tuning, *given], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def _algorithm_section(self) -> Mapping[str, Any]:
        """What the common settings say about an algorithm; defaults say nothing."""
        section: Mapping[str, Any] = self._given.get("algorithm", {})
        if isinstance(self.source, RunConfig):
            untouched = to_dict(RunConfig(algorithm=AlgorithmConfig(self.source.algorithm.name)))["algorithm"]
            return {} if section == untouched else section
        return section


def _key(text: str) -> str:
    return text.partition("=")[0].strip()
