"""Which runs a comparison consists of: every algorithm with every seed, each with its own folder.

The folder's name follows from the settings, so that the same command finds it again; more algorithms or seeds
join the same folder, other settings get another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from accord.config import AlgorithmConfig, RunConfig, catalog, config_hash, load_config
from accord.config.load import read_toml
from accord.config.sections import own_settings
from accord.errors import ConfigError, nearest
from accord.settings import Setting


@dataclass(frozen=True)
class Tuning:
    """How a comparison is tuned: trials for each algorithm, and their rounds (None: as many as the runs have)."""

    trials: int
    rounds: int | None = None

    def __post_init__(self) -> None:
        if self.trials < 2:
            raise ConfigError(f"--tune {self.trials}: must be at least 2; the first trial is the settings as they are")
        if self.rounds is not None and self.rounds < 1:
            raise ConfigError(f"--tune-rounds {self.rounds}: must be at least 1")


@dataclass(frozen=True)
class Entry:
    """One run of a comparison."""

    config: RunConfig

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return Path(self.config.out) / self.config.name

    @property
    def label(self) -> str:
        """What is printed about it."""
        return f"{self.config.algorithm.name}, seed {self.config.seed}"

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return (self.folder / "summary.json").is_file()

    @property
    def begun(self) -> bool:
        """Whether it can be resumed."""
        return (self.folder / "config.toml").is_file()

    def check_folder(self) -> None:
        """Refuse a folder that holds something else."""
        if not self.begun:
            if self.folder.is_dir() and not any(self.folder.iterdir()):
                self.folder.rmdir()  # a stop between making the folder and the first file
            elif self.folder.exists():
                raise ConfigError(f"{self.folder} exists and holds no run: move it away, or choose another --name")
        elif config_hash(load_config(self.folder / "config.toml")) != config_hash(self.config):
            raise ConfigError(
                f"{self.folder} holds a run with other settings: choose another --name, or move the folder away"
            )


@dataclass(frozen=True)
class Comparison:
    """What was asked for, checked when it is made; nothing is written."""

    path: Path | None
    sets: Sequence[str]
    algorithms: Sequence[str]
    seeds: Sequence[int]
    tuning: Tuning | None = None

    def __post_init__(self) -> None:
        for key, instead in (("algorithm.name", "--algorithms"), ("seed", "--seeds")):
            if key in self.fixed:
                raise ConfigError(f"--set {key} has no place in a comparison: use {instead}")
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
            hints = "".join(f" {name!r}:{nearest(name, registry)}" for name in unknown if nearest(name, registry))
            raise ConfigError(
                f"--algorithms: unknown {', '.join(map(repr, unknown))}.{hints} Allowed: {', '.join(registry)}."
            )
        return {name: own_settings(AlgorithmConfig, registry[name]) for name in self.algorithms}

    @cached_property
    def fixed(self) -> frozenset[str]:
        """The keys of `sets`."""
        return frozenset(map(_key, self.sets))

    @cached_property
    def _own(self) -> list[str]:
        return sorted(key for key in self.fixed if key.startswith("algorithm."))

    def config(self, algorithm: str, seed: int, more: Sequence[str] = ()) -> RunConfig:
        """One run's configuration; a setting such as algorithm.mu goes to those that have it."""
        own = {f"algorithm.{key}" for key in self.settings[algorithm]}
        fitting = [text for text in self.sets if not _key(text).startswith("algorithm.") or _key(text) in own]
        return load_config(self.path, [*fitting, f"algorithm.name={algorithm}", f"seed={seed}", *more])

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
                entries.append(Entry(replace(config, out=str(self.folder), name=f"{algorithm}-{seed}")))
        for entry in entries:
            entry.check_folder()
        return entries

    def _digest(self, config: RunConfig) -> str:
        common = config_hash(replace(config, seed=0, algorithm=AlgorithmConfig()))
        section = read_toml(self.path).get("algorithm", {}) if self.path is not None else {}
        own = sorted(text for text in self.sets if _key(text).startswith("algorithm."))
        tuning = [self.tuning.trials, self.tuning.rounds] if self.tuning is not None else []
        text = json.dumps([common, section, own, *tuning], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:8]


def words(text: str, what: str) -> list[str]:
    """A list separated by commas, without repetitions."""
    found = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not found:
        raise ConfigError(f"{what} {text!r}: name at least one, separated by commas")
    return found


def numbers(text: str, what: str) -> list[int]:
    """Seeds separated by commas."""
    try:
        found = list(dict.fromkeys(int(word) for word in words(text, what)))
    except ValueError:
        raise ConfigError(f"{what} {text!r}: must be whole numbers separated by commas, such as 0,1,2") from None
    if min(found) < 0:
        raise ConfigError(f"{what} {text!r}: must be at least 0")
    return found


def _key(text: str) -> str:
    return text.partition("=")[0].strip()
