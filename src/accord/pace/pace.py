"""How long a client takes for a task: its steps, what it is sent and sends, and the way to it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accord.core.keys import Key
from accord.pace.presence import Mask, Presence
from accord.pace.spreads import Draw, Numbers
from accord.pace.traces import Devices

MBIT = 1e6 / 8  # bytes


@dataclass(frozen=True)
class Pace:
    """Seconds by client. What is drawn is drawn once per run, by the run's key."""

    step: Numbers  # [K] seconds a step takes
    mbit: Numbers  # [K] megabits per second, both ways; 0: sending takes no time
    latency: Numbers  # [K] seconds that every task takes beside
    presence: Presence
    steps: Callable[[str, int], int]  # of a task, for a client
    deadline: float = 0.0  # seconds an exchange waits; 0: for everyone
    wait: float = 60.0  # seconds that pass where nobody can be asked
    digest: str = ""  # of the files it was read from

    def seconds(self, task: str, client: int, down: int, up: int) -> float:
        """From the message to the answer; `down` and `up` are their bytes."""
        work = self.steps(task, client) * float(self.step[client])
        speed = float(self.mbit[client]) * MBIT
        return work + ((down + up) / speed if speed else 0.0) + float(self.latency[client])

    @property
    def weighs(self) -> bool:
        """Whether it matters how large messages are."""
        return bool((self.mbit > 0).any())

    def present(self, round: int, now: float) -> Mask:
        """[K] who can be asked."""
        return self.presence(round, now)


def drawn(key: Key, stream: str, draw: Draw, count: int, spread: float) -> Numbers:
    """A factor for every client: one that has 2 takes twice as long."""
    return draw(key.at(f"pace.{stream}"), count, spread)


def measured(devices: Devices | None, name: str, otherwise: Numbers) -> Numbers:
    """A column of the trace, where there is one."""
    found: Numbers | None = getattr(devices, name) if devices is not None else None
    return otherwise if found is None else np.asarray(found)


def digest_of(*parts: str) -> str:
    """Of several digests; nothing where there are none."""
    known = [part for part in parts if part]
    return hashlib.sha256(" ".join(known).encode()).hexdigest() if known else ""
