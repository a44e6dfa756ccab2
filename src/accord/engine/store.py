"""What clients remember between rounds: in memory, on disk when it grows past a limit.

Each version of a client's memory is one immutable file named by client, round and exchange within the round, so a
checkpoint only writes the clients that changed, and an older checkpoint stays whole.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from accord.core.tensors import Trees, num_bytes, ordered_trees
from accord.engine.files import write_atomic
from accord.errors import CheckpointError, DataError, RunError
from accord.wire.codec import decode, encode
from accord.wire.files import read_here, refuse_links, sha256_here
from accord.wire.format import LIMITS
from accord.wire.records import SHA256, Field

Manifest = dict[str, list[str]]  # client -> [file name, sha256]
Version = tuple[int, int]  # the round (from 1) and the exchange within it (from 0) that made it
FILE = re.compile(r"(0|[1-9][0-9]{0,17})-([0-9]{1,18})\.([0-9]{1,9})\.safetensors")  # client, version


def _is_manifest(value: object) -> bool:
    """Whether every client's file is its own, of this folder."""
    return isinstance(value, dict) and all(
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and SHA256.fits(entry[1])
        and (name := FILE.fullmatch(entry[0])) is not None
        and name[1] == client
        for client, entry in value.items()
    )


MANIFEST = Field(_is_manifest, "clients' numbers, each with its file (CLIENT-VERSION.safetensors) and its sha256")


class Remembered(Protocol):
    """What clients remember, as far as a checkpoint is concerned: here in files, or with the clients themselves."""

    def save(self) -> Manifest:
        """See that all of it is kept; say where."""
        ...

    def restore(self, manifest: Manifest) -> None:
        """Go on from what a checkpoint says."""
        ...

    def check(self, manifest: Manifest) -> None:
        """Raise CheckpointError unless all of it is there."""
        ...

    def has(self, manifest: Manifest) -> bool:
        """Whether all of it seems to be there."""
        ...

    def collect_garbage(self, kept: Iterable[Manifest]) -> None:
        """Nothing but these, and what is current, is needed any more."""
        ...

    def forget(self) -> None:
        """Nobody needs any of it any more."""
        ...


class ClientStore:
    """Memory by client id; least recently used clients leave the RAM first."""

    def __init__(self, folder: Path, sizes: np.ndarray[Any, np.dtype[np.int64]], limit_bytes: int) -> None:
        self.folder, self.sizes, self.limit = folder, sizes, limit_bytes
        self._held: OrderedDict[int, Trees] = OrderedDict()
        self._bytes = 0
        self._version: dict[int, Version] = {}  # of the last change
        self._files: dict[int, list[str]] = {}  # [name, sha256] of the version on disk, where it is the latest

    def __len__(self) -> int:
        return len(self._version)

    def clients(self) -> list[int]:
        """Those that have memory."""
        return sorted(self._version)

    def get(self, client: int) -> Trees | None:
        """A client's memory; None if it was never asked."""
        if client in self._held:
            self._held.move_to_end(client)
            return self._held[client]
        if client not in self._version:
            return None
        memory = self._read(self._files[client])
        self._hold(client, memory)
        return memory

    def put(self, client: int, version: Version, memory: Mapping[str, Any]) -> None:
        """Trees the client returned replace those of the same name; the others stay."""
        new = ordered_trees({**(self.get(client) or {}), **memory})
        if not new:
            return  # a method without memory leaves no trace of who was asked
        self._version[client] = version
        self._files.pop(client, None)
        self._hold(client, new)

    def save(self) -> Manifest:
        """Write what changed since it was last written; say where everything lies."""
        for client in self.clients():
            if client not in self._files:
                self._write(client)
        return {str(client): self._files[client] for client in self.clients()}

    def restore(self, manifest: Manifest) -> None:
        """Take over a checkpoint's manifest; contents are read when they are needed."""
        self._held.clear()
        self._bytes = 0
        self._files = {int(client): list(entry) for client, entry in manifest.items()}
        self._version = {client: _version_of(entry[0]) for client, entry in self._files.items()}

    def forget(self) -> None:
        """Nobody needs what the clients remember any more; `collect_garbage` takes the files."""
        self.restore({})

    def check(self, manifest: Manifest) -> None:
        """Raise CheckpointError unless every file is there with its checksum."""
        for entry in manifest.values():
            self._check(entry)

    def has(self, manifest: Manifest) -> bool:
        """Whether every file is there, unread."""
        return {entry[0] for entry in manifest.values()} <= self._present()

    def collect_garbage(self, kept: Iterable[Manifest]) -> None:
        """Delete versions no kept checkpoint and no client needs."""
        needed = {entry[0] for manifest in kept for entry in manifest.values()}
        needed |= {entry[0] for entry in self._files.values()}
        refuse_links(self.folder)
        for name in self._present() - needed:
            (self.folder / name).unlink(missing_ok=True)

    def _present(self) -> set[str]:
        """Names of the files in the folder that this store, or an earlier one, wrote."""
        if not self.folder.is_dir():
            return set()
        return {path.name for path in self.folder.iterdir() if FILE.fullmatch(path.name)}

    def _hold(self, client: int, memory: Trees) -> None:
        if client in self._held:
            self._bytes -= num_bytes(self._held[client])
        self._held[client] = memory  # at the end: whoever is there already was moved there by `get`
        self._bytes += num_bytes(memory)
        while self._bytes > self.limit and len(self._held) > 1:
            oldest = next(iter(self._held))
            if oldest not in self._files:
                self._write(oldest)
            self._bytes -= num_bytes(self._held.pop(oldest))

    def _write(self, client: int) -> None:
        data = encode(self._held[client])
        round, exchange = self._version[client]
        name = f"{client}-{round}.{exchange}.safetensors"
        refuse_links(self.folder)
        write_atomic(self.folder / name, data)
        self._files[client] = [name, hashlib.sha256(data).hexdigest()]

    def _read(self, entry: list[str]) -> Trees:
        self._check(entry)
        path = self.folder / entry[0]
        try:
            return ordered_trees(decode(read_here(path, LIMITS.size)))
        except (OSError, RunError, DataError) as error:
            raise CheckpointError(f"client memory {path} cannot be read: {error}") from error

    def _check(self, entry: list[str]) -> None:
        path = self.folder / entry[0]
        try:
            checksum = sha256_here(path)
        except (OSError, RunError) as error:
            raise CheckpointError(f"client memory {path} cannot be read: {error}") from error
        if checksum != entry[1]:
            raise CheckpointError(f"client memory {path} is damaged: its checksum differs")


def _version_of(name: str) -> Version:
    parts = FILE.fullmatch(name)
    assert parts is not None  # a manifest was checked
    return int(parts[2]), int(parts[3])
