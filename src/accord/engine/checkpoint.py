"""Checkpoints: `checkpoint/round-000012/{server.safetensors, run.json}` and the clients' files beside them.

A round's folder appears whole, by one rename, after everything in it reached the disk. Resuming takes the newest
folder whose checksums hold and says why a newer one was passed over. No pickle, no random state: draws are
addressed by (seed, stream, round, client), so the round number is all that is needed to go on.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from accord.core.tensors import Trees, ordered_trees
from accord.engine.files import sync_folder, write_atomic
from accord.engine.store import ClientStore, Manifest
from accord.errors import CheckpointError, DataError, RunError
from accord.wire.codec import decode, encode

FORMAT = 1


@dataclass(frozen=True)
class Snapshot:
    """A run between two rounds."""

    round: int  # rounds completed
    state: Trees
    clients: Manifest


class Checkpoints:
    """The checkpoint folder of one run."""

    def __init__(self, folder: Path, config_hash: str, keep: int) -> None:
        self.folder, self.config_hash, self.keep = folder, config_hash, keep

    @property
    def clients_folder(self) -> Path:
        """Where the store keeps the clients' memory."""
        return self.folder / "clients"

    def save(self, snapshot: Snapshot, store: ClientStore, versions: dict[str, str]) -> None:
        """Write a round's folder, then drop those that are too old and the client files only they needed."""
        server = encode(snapshot.state)
        record: dict[str, Any] = {
            "format": FORMAT,
            "round": snapshot.round,
            "config_hash": self.config_hash,
            "versions": versions,
            "clients": snapshot.clients,
            "server_sha256": hashlib.sha256(server).hexdigest(),
        }
        record["digest"] = _digest(record)
        final = self.folder / f"round-{snapshot.round:06d}"
        temporary = self.folder / f".{final.name}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            write_atomic(temporary / "server.safetensors", server)
            write_atomic(temporary / "run.json", json.dumps(record, indent=1, sort_keys=True))
            sync_folder(temporary)
            if final.exists():
                shutil.rmtree(final)
            temporary.rename(final)
            sync_folder(self.folder)
        except OSError as error:
            raise RunError(f"cannot write the checkpoint {final}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._prune(store)

    def _prune(self, store: ClientStore) -> None:
        folders = self._rounds()
        for old in folders[: -self.keep]:
            shutil.rmtree(old)
        manifests = []
        for kept in folders[-self.keep :]:
            try:
                manifests.append(self._record(kept)["clients"])
            except CheckpointError:  # an older, damaged one protects no client files
                continue
        store.collect_garbage(manifests)

    def newest(self, store: ClientStore) -> tuple[Snapshot | None, list[str]]:
        """The newest sound snapshot, and why newer ones were refused."""
        refused: list[str] = []
        for folder in reversed(self._rounds()):
            try:
                return self._load(folder, store), refused
            except CheckpointError as error:
                refused.append(f"{folder.name}: {error}")
        if refused:
            raise CheckpointError("no usable checkpoint:\n" + "\n".join(refused))
        return None, []

    def _rounds(self) -> list[Path]:
        return sorted(self.folder.glob("round-*")) if self.folder.is_dir() else []

    def _record(self, folder: Path) -> dict[str, Any]:
        try:
            record = json.loads((folder / "run.json").read_text())
            sound = record.get("digest") == _digest({k: v for k, v in record.items() if k != "digest"})
        except (OSError, ValueError, AttributeError) as error:
            raise CheckpointError(f"run.json cannot be read ({error})") from error
        if not sound:
            raise CheckpointError("run.json is damaged: its digest differs")
        if record["format"] != FORMAT:
            raise CheckpointError(f"written in format {record['format']}, this version reads format {FORMAT}")
        assert isinstance(record, dict)
        return record

    def _load(self, folder: Path, store: ClientStore) -> Snapshot:
        record = self._record(folder)
        if record["config_hash"] != self.config_hash:
            raise CheckpointError("it belongs to a run with another configuration")
        try:
            server = (folder / "server.safetensors").read_bytes()
        except OSError as error:
            raise CheckpointError(f"server.safetensors cannot be read ({error})") from error
        if hashlib.sha256(server).hexdigest() != record["server_sha256"]:
            raise CheckpointError("server.safetensors is damaged: its checksum differs")
        try:
            state = ordered_trees(decode(server))
        except DataError as error:
            raise CheckpointError(str(error)) from error
        store.check(record["clients"])
        return Snapshot(record["round"], state, record["clients"])


def _digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def to_device(trees: Trees, device: torch.device) -> Trees:
    """A state read from disk, where the run computes."""
    return {name: {leaf: t.to(device) for leaf, t in tree.items()} for name, tree in trees.items()}
