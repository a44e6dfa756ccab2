"""What came of each exchange since the last checkpoint, on the server's disk before anything is made of it.

A round may take several exchanges, and a server that dies between two of them must not ask again what was answered: the
round is begun anew from the state before it, and finds the answers here. An entry counts for the same request only.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from accord.core.tensors import Trees
from accord.core.types import Result
from accord.engine.files import write_atomic
from accord.errors import DataError, RunError
from accord.flower.protocol import MEMORY, WHOLE, Record
from accord.flower.versions import Memory
from accord.wire.codec import decode, encode, header_of
from accord.wire.files import read_here, refuse_links
from accord.wire.format import LIMITS
from accord.wire.records import SHA256, Bounds, Field, check, parse

NAME = re.compile(r"([0-9]{8})-(start|round|judge|end|stream)-([0-9]{1,9})\.safetensors")
BOUNDS = Bounds(size=LIMITS.header, depth=6, entries=1 << 23)
FIELDS = {
    "request": SHA256,
    "clients": Field(lambda value: isinstance(value, dict) and all(MEMORY.fits(v) for v in value.values()), "clients"),
    "missing": Field(lambda value: isinstance(value, dict), "who is missing"),
    "bytes_up": WHOLE,
    "bytes_down": WHOLE,
    "begun": Field(lambda value: isinstance(value, list), "who began"),
}


@dataclass(frozen=True)
class Taken:
    """What an exchange came to."""

    results: Mapping[int, Result]  # without memory, which stays with the clients
    memory: Mapping[int, Memory | None]  # the versions they are at now; None: they keep nothing
    missing: Mapping[int, str]
    bytes_up: int
    bytes_down: int
    begun: Sequence[tuple[int, str]] = ()  # in a stream: who began on which message before these answered


class Journal:
    """The entries in one folder, named by round (0 before the first), kind and number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, key: tuple[int, str, int], request: str) -> Taken | None:
        """What came of this exchange, if it was made before, of the very same request."""
        path = self._path(key)
        try:
            data = read_here(path, LIMITS.size)
            record = parse(header_of(data)["entry"].encode(), BOUNDS, "the journal's entry")
            check(record, FIELDS, "the journal's entry")
            return _taken(record, decode(data)) if record["request"] == request else None
        except (OSError, DataError, RunError, KeyError, ValueError):
            return None  # not there, or not whole: it is asked again, and nodes answer the same

    def keep(self, key: tuple[int, str, int], request: str, taken: Taken) -> None:
        """On the disk before it counts."""
        record: Record = {
            "request": request,
            "clients": {
                str(client): None if memory is None else [list(memory[0]), memory[1]]
                for client, memory in taken.memory.items()
            },
            "missing": {str(client): why for client, why in taken.missing.items()},
            "bytes_up": taken.bytes_up,
            "bytes_down": taken.bytes_down,
            "begun": [list(one) for one in taken.begun],
        }
        trees: Trees = {}
        for client, result in taken.results.items():
            trees[f"{client} metrics"] = dict(result.metrics)
            trees.update({f"{client} reply {name}": tree for name, tree in result.reply.items()})
        refuse_links(self.folder)
        write_atomic(self._path(key), encode(trees, {"entry": json.dumps(record, sort_keys=True)}))

    def drop(self, rounds: int) -> None:
        """All of these rounds is in a checkpoint."""
        with suppress(FileNotFoundError):
            for path in self.folder.iterdir():
                found = NAME.fullmatch(path.name)
                if found and int(found[1]) <= rounds:
                    path.unlink(missing_ok=True)

    def _path(self, key: tuple[int, str, int]) -> Path:
        return self.folder / f"{key[0]:08d}-{key[1]}-{key[2]}.safetensors"


def request_digest(task: str, clients: Sequence[int], round: int, lr: float, pieces: Mapping[str, bytes]) -> str:
    """The same for two requests exactly when they ask for the same."""
    found = hashlib.sha256(json.dumps([task, list(clients), round, lr, sorted(pieces)]).encode())
    for name in sorted(pieces):
        found.update(hashlib.sha256(pieces[name]).digest())
    return found.hexdigest()


def _taken(record: Record, trees: Trees) -> Taken:
    memory = {int(c): None if m is None else ((m[0][0], m[0][1]), m[1]) for c, m in record["clients"].items()}
    results = {}
    for client in sorted(memory):
        start = f"{client} reply "
        reply = {name.removeprefix(start): tree for name, tree in trees.items() if name.startswith(start)}
        results[client] = Result(reply, {}, trees[f"{client} metrics"])
    missing = {int(client): str(why) for client, why in record["missing"].items()}
    begun = [(int(client), str(name)) for client, name in record["begun"]]
    return Taken(results, memory, missing, record["bytes_up"], record["bytes_down"], begun)
