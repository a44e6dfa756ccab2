"""Which version of its memory each client is at, as the server knows it: the memory itself stays with the client."""

from __future__ import annotations

from collections.abc import Iterable

from accord.engine.store import FILE, Manifest, Version

Memory = tuple[Version, str]  # a version and the sha256 of its bytes


class Versions:
    """A checkpoint's `Remembered`, whose files are elsewhere."""

    def __init__(self) -> None:
        self._at: dict[int, Memory] = {}
        self._kept: list[Manifest] = []  # of checkpoints that may still be gone back to

    def at(self, client: int) -> Memory | None:
        """What a client is to build on; None: it is asked for the first time."""
        return self._at.get(client)

    def advance(self, client: int, memory: Memory) -> None:
        """The client's answer was taken: it is at this version now."""
        self._at[client] = memory

    def needed(self, client: int) -> list[Version]:
        """Versions of a client's that may still be named."""
        found = {_version(manifest[str(client)]) for manifest in self._kept if str(client) in manifest}
        return sorted(found | ({self._at[client][0]} if client in self._at else set()))

    def save(self) -> Manifest:
        """The clients have it on their disks."""
        return {
            str(client): [f"{client}-{round}.{exchange}.safetensors", sha256]
            for client, ((round, exchange), sha256) in sorted(self._at.items())
        }

    def restore(self, manifest: Manifest) -> None:
        """Go on from there."""
        self._at = {int(client): (_version(entry), entry[1]) for client, entry in manifest.items()}

    def check(self, manifest: Manifest) -> None:
        """Whether a client still has its memory is seen when it is asked."""

    def has(self, manifest: Manifest) -> bool:
        """As far as is known here."""
        return True

    def collect_garbage(self, kept: Iterable[Manifest]) -> None:
        """Clients are told with the next task."""
        self._kept = list(kept)

    def forget(self) -> None:
        """Nobody needs any of it."""
        self._at, self._kept = {}, []


def _version(entry: list[str]) -> Version:
    parts = FILE.fullmatch(entry[0])
    assert parts is not None  # a manifest was checked
    return int(parts[2]), int(parts[3])
