"""What a node keeps of a run on its own disk: what it was told when it joined, and its memory, version by version.

    FOLDER/RUN/join.json, initial.safetensors      told once
    FOLDER/RUN/forms.json                          the form of each task's messages, fixed by the first of them
    FOLDER/RUN/memory/3.0.safetensors              what it remembered after exchange 0 of round 3

The server names the version to build on and the one to make. A version whose making the server never heard of is never
named again: it never happened. The server also names those it may still go back to; all others are removed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accord.core.tensors import Trees, ordered_trees
from accord.engine.files import write_atomic
from accord.errors import DataError, RunError
from accord.flower.protocol import BOUNDS
from accord.flower.unchanged import Stamp, stamp
from accord.wire.codec import decode, encode
from accord.wire.files import read_here, refuse_links
from accord.wire.format import LIMITS, Spec, spec_of
from accord.wire.records import parse

Version = tuple[int, int]
FILE = re.compile(r"([0-9]{1,18})\.([0-9]{1,9})\.safetensors")
RUN_FOLDER = re.compile(r"[0-9a-f]{32}")
MOST_RUNS = 64  # whose memory a node keeps; the longest unused goes first


class LostError(RunError):
    """The node no longer has the memory the server names."""


@dataclass(frozen=True)
class RunMemory:
    """One run's part of a node's folder."""

    folder: Path

    @property
    def joined(self) -> bool:
        """Whether the node was told what the run is."""
        return (self.folder / "join.json").is_file()

    @property
    def invitation(self) -> Stamp:
        """Another one whenever the node was told something else."""
        return stamp([self.folder / "join.json", self.folder / "initial.safetensors"])

    def told(self) -> tuple[dict[str, Any], bytes]:
        """What it was told, and the initial model's bytes."""
        try:
            record: dict[str, Any] = parse(read_here(self.folder / "join.json", BOUNDS.size), BOUNDS, "join.json")
            return record, read_here(self.folder / "initial.safetensors", LIMITS.size)
        except OSError as error:
            raise LostError(f"{self.folder} cannot be read: {error.strerror or error}") from error

    def tell(self, record: Mapping[str, Any], initial: bytes) -> None:
        """Keep it; a run that is told anew begins anew, as far as this node goes, unless it is told the same."""
        refuse_links(self.folder.parent, self.folder)
        if self.joined and self.told() == (dict(record), initial):
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        write_atomic(self.folder / "initial.safetensors", initial)
        write_atomic(self.folder / "join.json", json.dumps(record, sort_keys=True, allow_nan=False))

    def memory(self, version: Version, sha256: str) -> Trees:
        """That version, if it is as the server knows it."""
        path = self._path(version)
        try:
            data = read_here(path, LIMITS.size)
        except OSError as error:
            raise LostError(f"the memory of version {_text(version)} is not here: {error.strerror or error}") from error
        if hashlib.sha256(data).hexdigest() != sha256:
            raise LostError(f"the memory of version {_text(version)} is not the one the server knows")
        return ordered_trees(decode(data))

    def remember(self, version: Version, memory: Trees) -> str:
        """Write a version; its sha256."""
        data = encode(memory)
        refuse_links(self.folder, self.folder / "memory")
        write_atomic(self._path(version), data)
        return hashlib.sha256(data).hexdigest()

    def prune(self, needed: Iterable[Version]) -> None:
        """Remove all versions but these."""
        kept = {self._path(version).name for version in needed}
        with suppress(FileNotFoundError):
            for path in (self.folder / "memory").iterdir():
                if FILE.fullmatch(path.name) and path.name not in kept:
                    path.unlink(missing_ok=True)

    def versions(self) -> list[Version]:
        """Those that are here."""
        if not (self.folder / "memory").is_dir():
            return []
        found = (FILE.fullmatch(path.name) for path in (self.folder / "memory").iterdir())
        return sorted((int(match[1]), int(match[2])) for match in found if match)

    def check_form(self, task: str, part: str, trees: Trees) -> None:
        """DataError unless a task's message has the form its first one had: names, kinds of numbers, shapes."""
        key, now = f"{task} {part}", _form(spec_of(trees))
        path = self.folder / "forms.json"
        known: dict[str, Any] = {}
        with suppress(FileNotFoundError):
            known = parse(read_here(path, BOUNDS.size), BOUNDS, "forms.json")
        if known.setdefault(key, now) != now:
            raise DataError(f"the {part} trees of task {task} have other names, kinds of numbers or shapes than before")
        if len(known) > 1000:
            raise DataError("too many kinds of messages")
        write_atomic(path, json.dumps(known, sort_keys=True)) if known[key] is now else None

    def _path(self, version: Version) -> Path:
        return self.folder / "memory" / f"{_text(version)}.safetensors"


def run_memory(folder: Path, run: str) -> RunMemory:
    """Of this run; `run` was checked to be nothing but digits."""
    assert RUN_FOLDER.fullmatch(run)
    return RunMemory(folder / run)


def forget_oldest(folder: Path, keep: str) -> None:
    """Make room for a new run."""
    runs = [path for path in folder.iterdir() if RUN_FOLDER.fullmatch(path.name)] if folder.is_dir() else []
    by_age = sorted((path for path in runs if path.name != keep), key=lambda path: path.stat().st_mtime)
    for path in by_age[: max(0, len(by_age) - MOST_RUNS + 1)]:
        refuse_links(path)
        shutil.rmtree(path, ignore_errors=True)


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _form(specs: Mapping[str, Mapping[str, Spec]]) -> str:
    """A digest: a model of many layers is not written out for every task."""
    plain = {t: {n: [str(s.dtype), list(s.shape)] for n, s in tree.items()} for t, tree in specs.items()}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
