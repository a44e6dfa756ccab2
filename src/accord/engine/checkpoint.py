"""Checkpoints: `checkpoint/round-000012/{server.safetensors, run.json}` and the clients' files beside them.

A round's folder appears whole, by one rename, after everything in it reached the disk. Resuming takes the newest
folder whose checksums hold and says why a newer one was passed over. No pickle, no random state: draws are
addressed by (seed, stream, round, client), so the round number is all that is needed to go on.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from accord.core.tensors import Trees, ordered_trees
from accord.engine.files import rounds_in, sync_folder, write_atomic
from accord.engine.store import MANIFEST, Manifest, Remembered
from accord.errors import CheckpointError, DataError, RunError
from accord.wire.codec import decode, encode
from accord.wire.files import read_here, refuse_links, sha256_here
from accord.wire.format import LIMITS
from accord.wire.records import ANY_TEXT, SHA256, TEXTS, WHOLE, Bounds, check, parse, shown
from accord.wire.writing import digest

FORMAT = 2
FIELDS = {
    "format": WHOLE,
    "round": WHOLE,
    "config_hash": ANY_TEXT,
    "versions": TEXTS,
    "clients": MANIFEST,
    "server_sha256": SHA256,
    "metrics_sha256": SHA256,
    "digest": SHA256,
}
BOUNDS = Bounds(size=1 << 28, depth=4, entries=1 << 23)  # of run.json: two million clients
_Marks = tuple[tuple[int, int, int], ...]  # of a folder's files: number, size, time of the last change


@dataclass(frozen=True)
class Snapshot:
    """A run between two rounds."""

    round: int  # rounds completed
    state: Trees
    clients: Manifest
    metrics: str = hashlib.sha256().hexdigest()  # of the lines of metrics.jsonl that were there
    versions: dict[str, str] = field(default_factory=dict)  # what wrote it, where it was read


class Checkpoints:
    """The checkpoint folder of one run."""

    def __init__(self, folder: Path, config_hash: str, keep: int) -> None:
        self.folder, self.config_hash, self.keep = folder, config_hash, keep
        self._sound: dict[Path, _Marks] = {}  # what was found sound, and looks as it did then

    @property
    def clients_folder(self) -> Path:
        """Where the store keeps the clients' memory."""
        return self.folder / "clients"

    def save(self, snapshot: Snapshot, store: Remembered, versions: dict[str, str]) -> None:
        """Write a round's folder, then drop those that are too old and the client files only they needed."""
        server = encode(snapshot.state)
        record: dict[str, Any] = {
            "format": FORMAT,
            "round": snapshot.round,
            "config_hash": self.config_hash,
            "versions": versions,
            "clients": snapshot.clients,
            "server_sha256": hashlib.sha256(server).hexdigest(),
            "metrics_sha256": snapshot.metrics,
        }
        record["digest"] = digest(record)
        text = json.dumps(record, indent=1, sort_keys=True, allow_nan=False).encode()
        if len(text) > BOUNDS.size:
            raise RunError(f"the checkpoint's record has {len(text)} bytes: more than {BOUNDS.size} could not be read")
        final = self.folder / f"round-{snapshot.round:06d}"
        temporary = self.folder / f".{final.name}.tmp"
        refuse_links(self.folder, temporary, final)
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            write_atomic(temporary / "server.safetensors", server)
            write_atomic(temporary / "run.json", text)
            sync_folder(temporary)
            if final.exists():
                shutil.rmtree(final)
            temporary.rename(final)
            sync_folder(self.folder)
        except OSError as error:
            raise RunError(f"cannot write the checkpoint {final}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._sound[final] = _marks(final)
        self.prune(store)

    def prune(self, store: Remembered) -> None:
        """Drop what is older than the `keep` newest sound ones; damaged ones count for nothing."""
        manifests: list[Manifest] = []
        sound = 0
        for number, folder in reversed(rounds_in(self.folder)):
            if sound == self.keep:
                self._sound.pop(folder, None)
                _remove(folder)
                continue
            try:
                record = self._record(number, folder)
            except CheckpointError:  # what cannot be read protects no client files
                continue
            manifests.append(record["clients"])
            sound += self._is_sound(folder, record) and store.has(record["clients"])
        store.collect_garbage(manifests)

    def release(self, store: Remembered) -> None:
        """The run is over: what its clients remember is needed by checkpoints alone, if there are any."""
        store.forget()
        self.prune(store)
        for folder in (self.clients_folder, self.folder):
            with suppress(OSError):
                folder.rmdir()  # unless there is something in it

    def _is_sound(self, folder: Path, record: dict[str, Any]) -> bool:
        """Whether the state is the one recorded; read again only if the files changed since."""
        try:
            marks = _marks(folder)
            if self._sound.get(folder) != marks:
                self._check_state(folder, record)
                self._sound[folder] = marks
        except (OSError, CheckpointError):
            return False
        return True

    def newest(self, store: Remembered) -> tuple[Snapshot | None, list[str]]:
        """The newest sound snapshot, and why newer ones were refused."""
        refused: list[str] = []
        for number, folder in reversed(rounds_in(self.folder)):
            try:
                return self._load(number, folder, store), refused
            except CheckpointError as error:
                refused.append(f"{folder.name}: {error}")
        if refused:
            raise CheckpointError("no usable checkpoint:\n" + "\n".join(refused))
        return None, []

    def _record(self, number: int, folder: Path) -> dict[str, Any]:
        try:
            record: dict[str, Any] = parse(read_here(folder / "run.json", BOUNDS.size), BOUNDS, "run.json")
            if record.get("digest") != digest({k: v for k, v in record.items() if k != "digest"}):
                raise CheckpointError("run.json is damaged: its digest differs")
            if record.get("format") != FORMAT:
                raise CheckpointError(
                    f"written in format {shown(record.get('format'))}, this version reads format {FORMAT}"
                )
            check(record, FIELDS, "run.json")
        except (OSError, DataError, RunError) as error:
            raise CheckpointError(f"run.json cannot be read ({error})") from error
        if record["round"] != number:
            raise CheckpointError(f"its record is that of round {record['round']}")
        if record["config_hash"] != self.config_hash:
            raise CheckpointError("it belongs to a run with another configuration")
        return record

    def _load(self, number: int, folder: Path, store: Remembered) -> Snapshot:
        record = self._record(number, folder)
        self._check_state(folder, record)
        try:
            state = ordered_trees(decode(read_here(folder / "server.safetensors", LIMITS.size)))
        except (OSError, RunError, DataError) as error:
            raise CheckpointError(f"server.safetensors cannot be read ({error})") from error
        store.check(record["clients"])
        return Snapshot(record["round"], state, record["clients"], record["metrics_sha256"], record["versions"])

    @staticmethod
    def _check_state(folder: Path, record: dict[str, Any]) -> None:
        """CheckpointError unless the server's file is the one recorded."""
        try:
            found = sha256_here(folder / "server.safetensors")
        except (OSError, RunError) as error:
            raise CheckpointError(f"server.safetensors cannot be read ({error})") from error
        if found != record["server_sha256"]:
            raise CheckpointError("server.safetensors is damaged: its checksum differs")


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise RunError(f"cannot remove the old checkpoint {folder}: {error.strerror or error}") from error


def _marks(folder: Path) -> _Marks:
    files = [os.lstat(folder / name) for name in ("run.json", "server.safetensors")]
    return tuple((file.st_ino, file.st_size, file.st_mtime_ns) for file in files)


def to_device(trees: Trees, device: torch.device) -> Trees:
    """A state read from disk, where the run computes."""
    return {name: {leaf: t.to(device) for leaf, t in tree.items()} for name, tree in trees.items()}
