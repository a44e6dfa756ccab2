"""Randomness by address: a key is a seed, and `(stream, round, client)` says which numbers are meant.

Nothing is drawn from a running stream, so no generator state is ever saved: a resumed run, another executor or a
remote node asks for the same address and gets the same numbers.

A client draws below a key of its own, which is a hash of the run's: whoever holds it can draw that client's batches and
noise, but learns nothing of the run's key, the cohorts, or other clients. (A seed that can be guessed, such as 0, can
be tried out. Where clients must not know one another's draws, choose a seed of 60 bits or so, by chance.)
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Key:
    """The run's seed, or what a client was given in its place."""

    seed: int

    def client(self, client: int) -> Key:
        """A client's own key; the way back is a hash's."""
        digest = hashlib.sha256(f"accord client {self.seed} {client}".encode()).digest()
        return Key(int.from_bytes(digest, "big"))

    def _sequence(self, stream: str, round: int, client: int) -> np.random.SeedSequence:
        return np.random.SeedSequence([self.seed, zlib.crc32(stream.encode()), round + 1, client + 1])

    def at(self, stream: str, round: int = -1, client: int = -1) -> np.random.Generator:
        """A counter-based generator for one purpose, round and client (-1: not tied to one)."""
        return np.random.Generator(np.random.Philox(self._sequence(stream, round, client)))

    def number(self, stream: str, round: int = -1, client: int = -1) -> int:
        """A 63-bit seed for libraries that want one (torch's initialisers and dropout)."""
        return int(self._sequence(stream, round, client).generate_state(1, np.uint64)[0] >> np.uint64(1))
