"""Which runs a comparison consists of: every algorithm with every seed, each with its own folder.

The folder's name follows from the settings, so that the same command finds it again; more algorithms or seeds
join the same folder, other settings get another one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

from accord.config import AlgorithmConfig, RunConfig, catalog, config_hash, load_config
from accord.config.load import read_toml
from accord.config.schema import own_settings
from accord.errors import ConfigError, nearest


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


def plan(path: Path | None, sets: list[str], algorithms: list[str], seeds: list[int]) -> list[Entry]:
    """All runs, checked: configurations first, then folders that hold something else."""
    for key, instead in (("algorithm.name", "--algorithms"), ("seed", "--seeds")):
        if key in map(_key, sets):
            raise ConfigError(f"--set {key} has no place in a comparison: use {instead}")
    known = _settings(algorithms)
    own = [text for text in sets if _key(text).startswith("algorithm.")]
    for key in map(_key, own):
        if not any(key in keys for keys in known.values()):
            allowed = ", ".join(sorted(set().union(*known.values()))) or "none"
            raise ConfigError(f"{key}: none of {', '.join(algorithms)} has this setting. Allowed: {allowed}.")
    configs: list[RunConfig] = []
    for algorithm in algorithms:
        # A setting such as algorithm.mu goes to those that have it.
        fitting = [text for text in sets if text not in own or _key(text) in known[algorithm]]
        fitting.append(f"algorithm.name={algorithm}")
        configs += [load_config(path, [*fitting, f"seed={seed}"]) for seed in seeds]
    name = configs[0].name or f"compare-{_digest(configs[0], path, own)}"
    folder = Path(configs[0].out) / name
    entries = [Entry(replace(c, out=str(folder), name=f"{c.algorithm.name}-{c.seed}")) for c in configs]
    for entry in entries:
        _check_folder(entry)
    return entries


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


def _settings(algorithms: list[str]) -> dict[str, set[str]]:
    registry = catalog.registry("algorithm")
    unknown = [name for name in algorithms if name not in registry]
    if unknown:
        hints = "".join(f" {name!r}:{nearest(name, registry)}" for name in unknown if nearest(name, registry))
        raise ConfigError(
            f"--algorithms: unknown {', '.join(map(repr, unknown))}.{hints} Allowed: {', '.join(registry)}."
        )
    return {name: {f"algorithm.{key}" for key in own_settings(AlgorithmConfig, registry[name])} for name in algorithms}


def _digest(config: RunConfig, path: Path | None, own: list[str]) -> str:
    common = config_hash(replace(config, seed=0, algorithm=AlgorithmConfig()))
    section = read_toml(path).get("algorithm", {}) if path is not None else {}
    text = json.dumps([common, section, sorted(own)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _check_folder(entry: Entry) -> None:
    if not entry.begun:
        if entry.folder.is_dir() and not any(entry.folder.iterdir()):
            entry.folder.rmdir()  # a stop between making the folder and the first file
        elif entry.folder.exists():
            raise ConfigError(f"{entry.folder} exists and holds no run: move it away, or choose another --name")
    elif config_hash(load_config(entry.folder / "config.toml")) != config_hash(entry.config):
        raise ConfigError(
            f"{entry.folder} holds a run with other settings: choose another --name, or move the folder away"
        )
