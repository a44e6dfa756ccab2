"""Is it more than chance? What is measured is measured again with samples dealt anew to the same clients.

Small clients differ from the whole by chance alone, so no distance means anything by itself. Samples are shuffled
between clients, within strata where something must stay as it is (feature shift is judged given the class): whatever
the sizes, the shuffled federations are what the real one would be if it did not matter who holds what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accord.data.federated import Index

Floats = npt.NDArray[np.float64]
TURNS = 99  # shufflings
SURE = 4.0  # deviations beyond the shufflings' mean; a normal variable is there once in thirty thousand times
SURE_OF_ONE = 5.0  # the same for the furthest of many clients, whose tail is longer


@dataclass(frozen=True)
class Chance:
    """A number, and what chance makes of it."""

    seen: float
    mean: float
    deviation: float
    share: float  # of shufflings that reach what was seen, itself counted: a p-value

    @property
    def excess(self) -> float:
        """What chance does not explain."""
        return self.seen - self.mean

    @property
    def away(self) -> float:
        """In deviations."""
        return self.excess / self.deviation if self.deviation > 0 else 0.0

    @property
    def sure(self) -> bool:
        """Beyond all shufflings, and far beyond."""
        return self.share <= 1 / (TURNS + 1) and self.away >= SURE


def chance(seen: float, shuffled: Floats) -> Chance:
    """Against the same number of shuffled federations."""
    reached = int((shuffled >= seen - 1e-12 * max(1.0, abs(seen))).sum())
    return Chance(seen, float(shuffled.mean()), float(shuffled.std(ddof=1)), (1 + reached) / (1 + len(shuffled)))


def shufflings(groups: Index, strata: Index, rng: np.random.Generator, turns: int = TURNS) -> Iterator[Index]:
    """The groups of all samples, shuffled within each stratum."""
    order = np.argsort(strata, kind="stable")
    starts = strata[order]
    for _ in range(turns):
        shuffled = np.empty_like(groups)
        shuffled[order] = groups[order][np.lexsort((rng.random(len(groups)), starts))]
        yield shuffled


def against_chance(
    measure: Callable[[Index], Floats], groups: Index, strata: Index, rng: np.random.Generator, turns: int = TURNS
) -> tuple[Floats, Floats]:
    """What `measure` gives, a number or one per client, and [turns, ...] what it gives of shuffled groups."""
    return measure(groups), np.stack([measure(shuffled) for shuffled in shufflings(groups, strata, rng, turns)])


def outstanding(seen: Floats, shuffled: Floats) -> list[int]:
    """The clients that are further beyond chance than any shuffled one, the furthest first.

    The largest of many clients is large by chance, so each is held against the largest of every shuffled federation.
    """
    mean, deviation = shuffled.mean(0), shuffled.std(0, ddof=1)
    scale = np.where(deviation > 0, deviation, np.inf)
    away = (seen - mean) / scale
    largest = ((shuffled - mean) / scale).max(1)
    bound = max(SURE_OF_ONE, float(largest.max()), float(largest.mean() + SURE * largest.std(ddof=1)))
    return [int(k) for k in np.argsort(-away, kind="stable") if away[k] >= bound]
