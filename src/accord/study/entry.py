"""One run of a study: where it lies, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from accord.config import RunConfig, config_hash, load_config
from accord.engine.folder import abandoned
from accord.errors import AccordError, ConfigError

OTHER_NAME = "choose another name (--name, in Python name=... among the sets)"


class Run(NamedTuple):
    """What tells one run of a comparison from the others."""

    algorithm: str
    seed: int

    @property
    def label(self) -> str:
        """What is printed about it."""
        return f"{self.algorithm}, seed {self.seed}"

    @property
    def folder_name(self) -> str:
        """Its folder in that of the comparison."""
        return f"{self.algorithm}-{self.seed}"


@dataclass(frozen=True)
class Entry:
    """One run of a study."""

    config: RunConfig

    @property
    def run(self) -> Run:
        """Its algorithm and seed."""
        return Run(self.config.algorithm.name, self.config.seed)

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
        elif config_hash(load_config(self.folder / "config.toml")) != config_hash(self.config):
            raise ConfigError(f"{self.folder} holds a run with other settings: {OTHER_NAME}, or move the folder away")
