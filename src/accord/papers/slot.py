"""Where a run lies, how far it is, and carrying it out from there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from accord.config import RunConfig


@dataclass(frozen=True)
class Slot:
    """A run's configuration, its folder's place included."""

    config: RunConfig

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return Path(self.config.out) / self.config.name

    @property
    def begun(self) -> bool:
        """Whether it can be resumed."""
        return (self.folder / "config.toml").is_file()

    def carry_out(self) -> None:
        """Start the run, or go on with it as it was begun; one that came to its end is left as it is."""
        from accord.engine.run import resume, run

        if (self.folder / "summary.json").is_file():
            return
        if self.begun:
            resume(self.folder)
        else:
            run(self.config)
