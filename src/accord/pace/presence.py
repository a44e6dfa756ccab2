"""When clients can be asked. Every answer follows from the run's key, the round and the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from accord.core.keys import Key
from accord.errors import ConfigError
from accord.pace.traces import Intervals
from accord.settings import Registry

Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Presence(Protocol):
    """Who is there."""

    def __call__(self, round: int, now: float) -> Mask:
        """[K] whether each client can be asked in this round, at this time."""
        ...


@dataclass(frozen=True)
class Terms:
    """What a presence is made from."""

    key: Key
    count: int  # clients
    share: float
    period: float
    intervals: Intervals | None


PRESENCES: Registry[Callable[[Terms], Presence]] = Registry("presence")


@PRESENCES.add("always")
@dataclass(frozen=True)
class Always:
    """Everybody, at any time."""

    terms: Terms

    def __call__(self, round: int, now: float) -> Mask:
        return np.ones(self.terms.count, dtype=np.bool_)


@PRESENCES.add("chance")
@dataclass(frozen=True)
class Chance:
    """Each client in a share of the rounds, by chance."""

    terms: Terms

    def __call__(self, round: int, now: float) -> Mask:
        drawn: Mask = self.terms.key.at("presence", round).random(self.terms.count) < self.terms.share
        return drawn


@PRESENCES.add("daily")
@dataclass(frozen=True)
class Daily:
    """Each client in a share of every period (a day), which begins at an hour of its own."""

    terms: Terms

    @cached_property
    def _begins(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        return self.terms.key.at("presence").random(self.terms.count)

    def __call__(self, round: int, now: float) -> Mask:
        since: Mask = (now / self.terms.period - self._begins) % 1.0 < self.terms.share
        return since


@PRESENCES.add("trace")
@dataclass(frozen=True)
class Traced:
    """Each client within the intervals that a file names, again in every period."""

    terms: Terms

    def __post_init__(self) -> None:
        if self.terms.intervals is None:
            raise ConfigError("pace.presence = 'trace' needs pace.intervals: a CSV file with client, from, until")

    def __call__(self, round: int, now: float) -> Mask:
        found = self.terms.intervals
        assert found is not None  # said above
        mask = np.zeros(self.terms.count, dtype=np.bool_)
        time = now % self.terms.period
        mask[found.client[(found.begin <= time) & (time < found.until)]] = True
        return mask
