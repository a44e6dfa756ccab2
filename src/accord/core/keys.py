"""Randomness by address: a key is a seed, and `(stream, round, client)` says which numbers are meant.

Nothing is drawn from a running stream, so no generator state is ever saved: a resumed run, another executor or a
remote node asks for the same address and gets the same numbers.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Key:
    """The run's seed."""

    seed: int

    def _sequence(self, stream: str, round: int, client: int) -> np.random.SeedSequence:
        return np.random.SeedSequence([self.seed, zlib.crc32(stream.encode()), round + 1, client + 1])

    def at(self, stream: str, round: int = -1, client: int = -1) -> np.random.Generator:
        """A counter-based generator for one purpose, round and client (-1: not tied to one)."""
        return np.random.Generator(np.random.Philox(self._sequence(stream, round, client)))

    def number(self, stream: str, round: int = -1, client: int = -1) -> int:
        """A 63-bit seed for libraries that want one (torch's initialisers and dropout)."""
        return int(self._sequence(stream, round, client).generate_state(1, np.uint64)[0] >> np.uint64(1))
