"""Which runs a comparison consists of: every variant with every seed, each with its own folder.

The folder's name follows from the common settings (and from data and network, where they are given), so that the same
request finds it again; more algorithms, variants or seeds join the same folder, other settings get another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from accord.config import AlgorithmConfig, RunConfig, catalog, config_hash, from_dict, to_dict
from accord.config.load import read_toml
from accord.config.sections import own_settings
from accord.engine.files import write_atomic
from accord.errors import ConfigError
from accord.settings import Setting
from accord.study.checks import check_distinct, check_texts, several, whole
from accord.study.entry import OTHER_NAME, Entry, Run, read_comparison
from accord.study.inputs import Inputs
from accord.study.variants import (
    OWN,
    Axis,
    Variant,
    cells,
    check_keys,
    has_setting,
    key_of,
    read_sweep,
    read_variant,
)

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
    sweep: Mapping[str, Iterable[Any]] | Iterable[str] = ()

    def __post_init__(self) -> None:
        for name in ("sets", "algorithms", "seeds"):
            object.__setattr__(self, name, several(getattr(self, name), name))
        for name in ("sets", "algorithms"):
            check_texts(getattr(self, name), name)
        about = [text for text in self.sets if key_of(text).startswith("data.") or key_of(text) == "task"]
        named = from_dict({key: value for key, value in self._given.items() if key in ("data", "task")}, about)
        object.__setattr__(self, "inputs", self.inputs.with_files_of(named))
        if any(whole(seed, "seeds") < 0 for seed in self.seeds):
            raise ConfigError(f"seeds: must be at least 0, not {min(self.seeds)}")
        check_distinct(self.algorithms, "algorithms")
        check_distinct(self.seeds, "seeds")
        check_keys(list(self.fixed), "sets")
        known = {f"{OWN}{key}" for settings in self.settings.values() for key in settings}
        for key in self._own:
            if key not in known:
                allowed = ", ".join(sorted(known)) or "none"
                raise ConfigError(f"{key}: none of {', '.join(self.settings)} has this setting. Allowed: {allowed}.")
        for variant in self.variants:
            for seed in self.seeds:
                self.config(variant, seed)

    @cached_property
    def _asked(self) -> list[Variant]:
        """The algorithms, before any sweep."""
        asked = [read_variant(text) for text in self.algorithms]
        check_distinct([variant.label for variant in asked], "algorithms")
        return asked

    @cached_property
    def variants(self) -> list[Variant]:
        """All rows. A swept setting goes to those that have it; the others have one row less for it."""
        axes = self._axes
        taken = self.fixed | {key for variant in self._asked for key in variant.keys}
        for axis in axes:
            if axis.key in taken:
                raise ConfigError(
                    f"sweep {axis.key}: it is set already, for all runs or for a variant; drop one of them"
                )
        found = dict.fromkeys(self._fitting(cell) for variant in self._asked for cell in cells(variant, axes))
        for axis in axes:
            if not any(axis.key in variant.keys for variant in found):
                raise ConfigError(f"sweep {axis.key}: nothing that is compared has this setting")
        return list(found)

    @cached_property
    def _axes(self) -> list[Axis]:
        return read_sweep(self.sweep)

    def _fitting(self, cell: Variant) -> Variant:
        """A cell without the swept options that what it chose does not have."""
        swept = {axis.key for axis in self._axes}
        fits = (key not in swept or has_setting(key, partial(self._chosen, cell)) for key in cell.keys)
        return replace(cell, sets=tuple(text for text, fit in zip(cell.sets, fits, strict=True) if fit))

    def _chosen(self, cell: Variant, section: str) -> str | None:
        """The name that a cell has in a section, where one is said."""
        if section == "algorithm":
            return cell.algorithm
        for text in reversed([*self.sets, *cell.sets]):
            if key_of(text) == f"{section}.name":
                return text.partition("=")[2].strip().strip("\"'")
        given = self._given.get(section)
        return given.get("name") if isinstance(given, Mapping) else None

    @cached_property
    def settings(self) -> Mapping[str, Mapping[str, Setting]]:
        """Each algorithm's own settings."""
        registry = catalog.registry("algorithm")
        names = dict.fromkeys(variant.algorithm for variant in self._asked)
        return {name: own_settings(AlgorithmConfig, registry[name]) for name in names}

    @cached_property
    def fixed(self) -> frozenset[str]:
        """The keys of `sets`."""
        return frozenset(map(key_of, self.sets))

    @cached_property
    def _own(self) -> list[str]:
        return sorted(key for key in self.fixed if key.startswith(OWN))

    @cached_property
    def _given(self) -> Mapping[str, Any]:
        """The common settings, read once: a file may be edited while a comparison takes its hours."""
        if isinstance(self.source, RunConfig):
            return to_dict(self.source)
        return read_toml(Path(self.source)) if self.source is not None else {}

    def config(self, variant: Variant, seed: int, more: Sequence[str] = ()) -> RunConfig:
        """One run's configuration; a common setting such as algorithm.mu goes to those that have it."""
        known = {f"{OWN}{key}" for key in self.settings[variant.algorithm]}
        fitting = [text for text in self.sets if not key_of(text).startswith(OWN) or key_of(text) in known]
        file = "" if self.source is None or isinstance(self.source, RunConfig) else str(self.source)
        chosen = [f"algorithm.name={variant.algorithm}", f"seed={seed}"]
        return self.inputs.settled(from_dict(self._given, [*fitting, *chosen, *variant.sets, *more], file))

    @cached_property
    def folder(self) -> Path:
        """Where all of it lies."""
        first = self.config(self.variants[0], self.seeds[0])
        return Path(first.out) / (first.name or f"compare-{self.digest}")

    def entries(self, chosen: Mapping[str, Sequence[str]] | None = None) -> list[Entry]:
        """All runs, with the settings that were `chosen` for each variant; folders that hold something else are
        refused.
        """
        entries = []
        for variant in self.variants:
            for seed in self.seeds:
                config = self.config(variant, seed, (chosen or {}).get(variant.label, ()))
                name = Run(variant.label, seed).folder_name
                entries.append(Entry(replace(config, out=str(self.folder), name=name), variant.label))
        self.check_folders(entries)
        return entries

    def check_folders(self, entries: Sequence[Entry]) -> None:
        """Refuse runs made with other settings, other data or another network."""
        for entry in entries:
            entry.check_folder()
        path = self.folder / GIVEN
        given = path.read_text(encoding="utf-8") if path.is_file() else ""
        begun = any(True for place in ("*", "tune/*") for _ in self.folder.glob(f"{place}/config.toml"))
        if begun and given != self.inputs.digest:
            raise ConfigError(
                f"{self.folder} holds runs with other data or another network than the ones given: {OTHER_NAME}, "
                "or move the folder away"
            )
        known = read_comparison(self.folder)
        if known is not None and known["settings"] != self.digest:
            raise ConfigError(
                f"{self.folder} holds a comparison with other settings: {OTHER_NAME}, or move the folder away"
            )

    def claim(self) -> None:
        """Note in the folder, before the first run, which data and network its runs are about to get."""
        if self.inputs.digest:
            write_atomic(self.folder / GIVEN, self.inputs.digest)

    @cached_property
    def digest(self) -> str:
        """The same for the same common settings, search, data and network: what may share a folder and a table."""
        of_methods = sorted(text for text in self.sets if key_of(text).startswith(OWN))
        tuning = [self.tuning.trials, self.tuning.rounds] if self.tuning is not None else []
        given = [self.inputs.digest] if self.inputs.digest else []
        known = [self._common, self._algorithm_section(), of_methods, *tuning, *given]
        return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()[:8]

    @property
    def _common(self) -> str:
        try:
            plain = self.config(Variant(self.variants[0].algorithm), self.seeds[0])
        except ConfigError:  # the common settings alone are none; the variants' make them whole
            return repr([sorted(self.sets), self._given])
        return config_hash(replace(plain, seed=0, algorithm=AlgorithmConfig()))

    def _algorithm_section(self) -> Mapping[str, Any]:
        """What the common settings say about an algorithm; defaults say nothing."""
        section: Mapping[str, Any] = self._given.get("algorithm", {})
        if isinstance(self.source, RunConfig):
            untouched = to_dict(RunConfig(algorithm=AlgorithmConfig(self.source.algorithm.name)))["algorithm"]
            return {} if section == untouched else section
        return section
