"""A run's line-per-round logs.

`metrics.jsonl` is a result: it holds nothing that depends on the clock, so two runs of one configuration give the same
bytes, and a run goes on only if the lines of all rounds up to its checkpoint are those it wrote. Seconds are in
`timings.jsonl`, which is no result: a line of it that cannot be read is dropped, and a note says so.
"""

from __future__ import annotations

import os
import platform
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import safetensors
import torch

from accord._version import __version__
from accord.engine.earlier import keep_timings, kept_metrics
from accord.engine.files import sync_folder
from accord.errors import RunError
from accord.wire.files import no_links, refuse_links
from accord.wire.lines import lines
from accord.wire.writing import as_text, finite_only

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


class RunLogs:
    """The logs of rounds 1..`rounds` are kept; later ones are those of a stopped run, and are redone.

    `digest` is that of the metrics' lines as the checkpoint knows them; without one they are not compared.
    """

    NAMES = ("metrics", "timings")

    def __init__(self, folder: Path, rounds: int, digest: str = "") -> None:
        self.folder = folder
        refuse_links(*(self._path(name) for name in self.NAMES))
        kept = kept_metrics(self._path("metrics"), rounds, digest)
        if self._path("metrics").exists():
            with open(self._path("metrics"), "r+b", opener=no_links) as file:
                file.truncate(kept.bytes)
        self._sum = kept.sum
        for problem in keep_timings(self._path("timings"), rounds):
            self.note(f"timings.jsonl: {problem}; it was dropped, so the seconds are not those of all rounds")
        with ExitStack() as opened:
            try:
                self._files = {
                    name: opened.enter_context(open(self._path(name), "ab", buffering=0, opener=no_links))
                    for name in self.NAMES
                }
                sync_folder(folder)
            except OSError as error:
                raise RunError(f"cannot write into {folder}: {error.strerror or error}") from error
            self._open = opened.pop_all()

    @property
    def digest(self) -> str:
        """Of all lines of metrics.jsonl."""
        return str(self._sum.hexdigest())

    def write(self, name: str, record: Record) -> Record:
        """One line; the record as it is written, without numbers that are none. `sync` brings it to the disk."""
        written = finite_only(record)
        data = (as_text(written) + "\n").encode()
        self.check_place(name)
        rest = memoryview(data)
        try:
            while len(rest):
                rest = rest[self._files[name].write(rest) :]
        except OSError as error:
            self._fail(name, error)
        if name == "metrics":
            self._sum.update(data)
        return written

    def sync(self) -> None:
        """All lines reach the disk before anything that counts on them does."""
        for name in self.NAMES:
            self.check_place(name)
            try:
                os.fsync(self._files[name].fileno())
            except OSError as error:
                self._fail(name, error)

    def check_place(self, name: str = "metrics") -> None:
        """RunError if the file is no longer where it was: what is written would be lost."""
        try:
            if os.path.samestat(os.lstat(self._path(name)), os.fstat(self._files[name].fileno())):
                return
        except FileNotFoundError:
            pass
        except OSError as error:
            self._fail(name, error)
        raise RunError(
            f"{self._path(name)} was removed or moved while the run was at work: it stops here, as nothing more could "
            "be kept. Put the folder back and `accord resume` it, or start a new run."
        )

    def note(self, text: str) -> None:
        """A remark for whoever looks into the folder later."""
        try:
            with open(self.folder / "notes.txt", "a", encoding="utf-8", opener=no_links) as file:
                file.write(text + "\n")
        except OSError as error:
            self._fail("notes", error, ".txt")

    def read(self, name: str) -> list[Record]:
        """All lines written so far."""
        try:
            with open(self._path(name), "rb", opener=no_links) as file:
                return [line.record for line in lines(file) if line.record is not None]
        except OSError as error:
            raise RunError(f"cannot read {self._path(name)}: {error.strerror or error}") from error

    def close(self) -> None:
        """Close the files; what could not be written was said when it was written."""
        with suppress(OSError):
            self._open.close()

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"

    def _fail(self, name: str, error: OSError, ending: str = ".jsonl") -> NoReturn:
        raise RunError(
            f"cannot write {self.folder / name}{ending}: {error.strerror or error}. Free space, then `accord resume`."
        ) from error
