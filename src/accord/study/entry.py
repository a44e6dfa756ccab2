"""One run of a study: where it lies, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from accord.config import RunConfig, config_hash
from accord.engine.folder import abandoned, read_config
from accord.errors import AccordError, ConfigError, DataError, RunError
from accord.observe import Observer
from accord.study.variants import folder_name
from accord.wire.files import read_here
from accord.wire.records import Bounds, parse

OTHER_NAME = "choose another name (--name, in Python name=... among the sets)"


COMPARISON = "compare.json"
BOUNDS = Bounds(size=1 << 28, depth=16, entries=1 << 24)  # of that file


def read_comparison(folder: Path) -> dict[str, Any] | None:
    """What an earlier comparison wrote into a folder; None where there was none."""
    path = folder / COMPARISON
    if not path.is_file():
        return None
    try:
        known: dict[str, Any] = parse(read_here(path, BOUNDS.size), BOUNDS, COMPARISON)
        if not isinstance(known.get("settings"), str) or not isinstance(known.get("runs"), list):
            raise DataError("it is no comparison of this version")
    except (OSError, DataError, RunError) as error:
        raise DataError(
            f"cannot read {path}: {error}; move it away, and the next comparison writes a new one"
        ) from error
    return known


class Run(NamedTuple):
    """What tells one run of a comparison from the others."""

    algorithm: str  # or a variant of it, by its label
    seed: int

    @property
    def label(self) -> str:
        """What is printed about it."""
        return f"{self.algorithm}, seed {self.seed}"

    @property
    def folder_name(self) -> str:
        """Its folder in that of the comparison."""
        return f"{folder_name(self.algorithm)}-{self.seed}"


@dataclass(frozen=True)
class Entry:
    """One run of a study."""

    config: RunConfig
    variant: str  # the label of what is compared

    @property
    def run(self) -> Run:
        """Its variant and seed."""
        return Run(self.variant, self.config.seed)

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return Path(self.config.out) / self.config.name

    @property
    def label(self) -> str:
        """What is printed about it."""
        return self.run.label

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return (self.folder / "summary.json").is_file()

    @property
    def begun(self) -> bool:
        """Whether it can be resumed."""
        return (self.folder / "config.toml").is_file()

    def watchers(self) -> list[Observer]:
        """Observers it needs for itself."""
        return []

    def noted(self, error: AccordError) -> bool:
        """Whether a failure is a result of the study, and written down; if not, it is raised."""
        return False

    def tidy(self) -> None:
        """Remove what nobody needs once it is finished."""

    def check_folder(self) -> None:
        """Refuse a folder that holds something else."""
        if not self.begun:
            if self.folder.is_dir() and not any(self.folder.iterdir()):
                self.folder.rmdir()  # a stop between making the folder and the first file
            elif self.folder.exists() and not abandoned(self.folder):
                raise ConfigError(f"{self.folder} exists and holds no run: move it away, or {OTHER_NAME}")
        elif config_hash(known := read_config(self.folder)) != config_hash(as_begun(self.config, known)):
            raise ConfigError(f"{self.folder} holds a run with other settings: {OTHER_NAME}, or move the folder away")


def as_begun(config: RunConfig, known: RunConfig) -> RunConfig:
    """A configuration with what it leaves to the data as the run `known` found it; other data is refused by itself."""
    return replace(config, task=known.task) if config.task == "auto" else config
