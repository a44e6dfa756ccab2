"""A run's folder and its line-per-round logs.

`metrics.jsonl` holds nothing that depends on the clock, so two runs of one configuration give the same bytes;
seconds are in `timings.jsonl`.
"""

from __future__ import annotations

import json
import platform
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch

from accord._version import __version__
from accord.config import RunConfig
from accord.engine.files import no_links, refuse_links
from accord.errors import ConfigError, RunError

Record = dict[str, Any]


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    return {
        "accord": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "safetensors": safetensors.__version__,
        "python": platform.python_version(),
    }


def new_folder(config: RunConfig, data_name: str) -> Path:
    """`out/name`, or a name made from algorithm, data and seed with a number when it is taken."""
    out = Path(config.out)
    base = config.name or f"{config.algorithm.name}-{plain_name(data_name)}-s{config.seed}"
    candidates = [out / base] if config.name else [out / base, *(out / f"{base}-{n}" for n in range(2, 10000))]
    for folder in candidates:
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise RunError(
                f"cannot make the run's folder {folder}: {error.strerror or error}. Choose another --out."
            ) from error
    raise ConfigError(
        f"the run folder {candidates[0]} exists already: choose another name, or go on with it by "
        f"`accord resume {candidates[0]}`"
    )


def plain_name(name: str) -> str:
    """A data set's name as a part of a folder's name."""
    return re.sub(r"[^\w.+=,@-]+", "_", name)[:80] or "data"


class RunLogs:
    """The logs of rounds 1..`rounds` are kept; later or torn lines are those of a stopped run, and are redone."""

    NAMES = ("metrics", "timings")

    def __init__(self, folder: Path, rounds: int) -> None:
        self.folder = folder
        refuse_links(*(self._path(name) for name in self.NAMES))
        for name in self.NAMES:
            path = self._path(name)
            if path.exists():
                self._truncate(path, rounds)
        try:
            self._files = {
                name: open(self._path(name), "a", encoding="utf-8", opener=no_links)  # noqa: SIM115  # see `close`
                for name in self.NAMES
            }
        except OSError as error:
            raise RunError(f"cannot write into {folder}: {error.strerror or error}") from error

    def write(self, name: str, record: Record) -> None:
        """One line, on its way to the disk before anything that counts on it."""
        try:
            self._files[name].write(json.dumps(record) + "\n")
            self._files[name].flush()
        except OSError as error:
            raise RunError(
                f"cannot write {self._path(name)}: {error.strerror or error}. Free space, then `accord resume`."
            ) from error

    def note(self, text: str) -> None:
        """A remark for whoever looks into the folder later."""
        with open(self.folder / "notes.txt", "a", encoding="utf-8", opener=no_links) as file:
            file.write(text + "\n")

    def read(self, name: str) -> list[Record]:
        """All lines written so far."""
        return [json.loads(line) for line in self._path(name).read_text(encoding="utf-8").splitlines()]

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            with suppress(OSError):  # of a line that did not fit, which `write` has said
                file.close()

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"

    @staticmethod
    def _truncate(path: Path, rounds: int) -> None:
        kept = 0
        with open(path, "rb", opener=no_links) as file:
            for line in file:
                try:
                    if not line.endswith(b"\n") or json.loads(line)["round"] > rounds:
                        break
                except (ValueError, KeyError, TypeError):
                    break
                kept += len(line)
        with open(path, "r+b", opener=no_links) as file:
            file.truncate(kept)
