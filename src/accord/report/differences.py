"""Is one better than the other? Differences seed by seed, with a confidence interval over seeds.

Two rows of a comparison share their seeds: the same division of the data and the same initial weights. What the seeds
have in common falls out of the difference of a pair, so it says more than the two deviations do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accord.errors import ConfigError, nearest
from accord.measures import Column
from accord.report.tables import Summary, columns

LEVEL = 0.95

Runs = Mapping[Any, Summary]  # by algorithm and seed


@dataclass(frozen=True)
class Difference:
    """A row minus the baseline, over the seeds both have; the interval is None where they share fewer than two."""

    algorithm: str
    baseline: str
    mean: float
    low: float | None
    high: float | None
    seeds: int

    @property
    def told_apart(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Differences:
    """All rows against one of them, in one number; where rows have other data or partitions, against one of theirs."""

    column: Column
    baseline: str  # as it was named; empty: the row with the best mean
    rows: Sequence[Difference]

    @property
    def title(self) -> str:
        """What the numbers are."""
        baselines = {row.baseline for row in self.rows}
        if len(baselines) == 1:
            (name,) = baselines
            return f"difference to {name if self.baseline else f'the best, {name}'}, in {self.column.title}"
        which = self.baseline or "the best"
        return f"difference to {which} on the same data, in {self.column.title}"

    @property
    def remark(self) -> str:
        """What the interval is, or why there is none."""
        if any(row.low is None for row in self.rows):
            return "An interval needs at least 2 seeds that both have run with (--seeds 0,1,2)."
        return f"Mean and {100 * LEVEL:g} % t-interval of the differences between runs with the same seed."

    @property
    def sentence(self) -> str:
        """What it comes to; empty where rows have several baselines, or one that was asked for."""
        best = {row.baseline for row in self.rows}
        if self.baseline or len(best) != 1:
            return ""
        apart = [f"{row.algorithm} ({self._signed(row.mean)})" for row in self.rows if row.told_apart]
        alike = [f"{row.algorithm} ({self._signed(row.mean)})" for row in self.rows if not row.told_apart]
        behind = f" Behind it by more than the seeds explain: {', '.join(apart)}." if apart else ""
        unsure = f" Not told apart from it by these seeds: {', '.join(alike)}." if alike else ""
        return f"Best in {self.column.title}: {best.pop()}.{behind}{unsure}"

    def cells(self, row: Difference) -> list[str]:
        """Difference, interval, seeds, and whether 0 lies outside."""
        interval = "-"
        if row.low is not None and row.high is not None:
            interval = f"{self._signed(row.low)} to {self._signed(row.high)}"
        told = "yes" if row.told_apart else "no" if row.low is not None else "-"
        return [self._signed(row.mean), interval, str(row.seeds), told]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        known = [{**vars(row), "told_apart": row.told_apart} for row in self.rows]
        return {"value": self.column.key, "level": LEVEL, "rows": known}

    def _signed(self, value: float) -> str:
        return ("+" if value > 0 else "") + self.column.write(value)


HEADINGS = ("algorithm", "difference", "interval", "seeds", "apart")
SCENE = ("data.", "partition.", "transform.")  # settings that make another problem, on which nobody is comparable


def differences(runs: Runs, baseline: str | None = None, by: str | None = None) -> Differences | None:
    """Every algorithm of `runs` (summaries by algorithm and seed) against `baseline`; None: against the best.

    Those whose labels say that they ran on other data, or another partition, have a baseline of their own. `by` is the
    key of a column; None: the first one that most of them have. None is returned where there is nothing to compare.
    """
    algorithms = list(dict.fromkeys(algorithm for algorithm, _ in runs))
    if baseline is not None and baseline not in {name for label in algorithms for name in (label, divided(label)[0])}:
        raise ConfigError(
            f"baseline {baseline!r} is not among what is compared.{nearest(baseline, algorithms)} Allowed: "
            f"{', '.join(map(repr, algorithms))}."
        )
    column = _column(runs, by)
    scenes: dict[str, dict[str, dict[int, float]]] = {}
    for (algorithm, seed), summary in runs.items():
        value = column.find(summary)
        if isinstance(value, (int, float)) and math.isfinite(value):
            scenes.setdefault(divided(algorithm)[1], {}).setdefault(algorithm, {})[seed] = float(value)
    sign = -1 if column.better == "lower" else 1
    rows = []
    for values in scenes.values():
        means = {name: sign * statistics.fmean(by_seed.values()) for name, by_seed in values.items()}
        named = [name for name in values if baseline in (name, divided(name)[0])]
        for against in named[:1] if baseline is not None else [max(means, key=means.__getitem__)]:
            others = [(name, own) for name, own in values.items() if name != against]
            rows += [_difference(name, own, against, values[against]) for name, own in others]
    rows = [row for row in rows if row.seeds]
    return Differences(column, baseline or "", rows) if rows else None


def divided(label: str) -> tuple[str, str]:
    """A label without the settings that make another problem, and those.

    >>> divided("fedprox: mu=0.1, partition.alpha=1"), divided("fedavg: partition.alpha=1")
    (('fedprox: mu=0.1', 'partition.alpha=1'), ('fedavg', 'partition.alpha=1'))
    """
    name, _, rest = label.partition(": ")
    settings = rest.split(", ") if rest else []
    scene = [text for text in settings if text.startswith(SCENE)]
    own = ", ".join(text for text in settings if text not in scene)
    return (f"{name}: {own}" if own else name), ", ".join(scene)


def _difference(name: str, own: Mapping[int, float], baseline: str, other: Mapping[int, float]) -> Difference:
    pairs = [own[seed] - other[seed] for seed in own if seed in other]
    mean = statistics.fmean(pairs) if pairs else math.nan
    if len(pairs) < 2:
        return Difference(name, baseline, mean, None, None, len(pairs))
    half = student(LEVEL, len(pairs) - 1) * statistics.stdev(pairs) / math.sqrt(len(pairs))
    return Difference(name, baseline, mean, mean - half, mean + half, len(pairs))


def _column(runs: Runs, by: str | None) -> Column:
    known = {column.key: column for column in columns() if column.compared}
    if by is not None:
        if by not in known:
            raise ConfigError(f"no column is called {by!r}.{nearest(by, known)} Allowed: {', '.join(known)}.")
        return known[by]
    judged = [column for column in known.values() if column.better is not None]

    def held(column: Column) -> int:
        return len({algorithm for (algorithm, _), summary in runs.items() if column.find(summary) is not None})

    return max(judged, key=held)  # the first of those that most have


def student(level: float, freedom: int) -> float:
    """How many standard errors a two-sided interval of Student's t reaches to each side.

    By halving, from the finite sums the distribution has for whole degrees of freedom (Abramowitz and Stegun 26.7.3-4).

    >>> round(student(0.95, 1), 3), round(student(0.95, 2), 3), round(student(0.95, 9), 3)
    (12.706, 4.303, 2.262)
    """
    low, high = 0.0, math.pi / 2  # of the angle whose tangent is t / sqrt(freedom)
    for _ in range(100):
        middle = (low + high) / 2
        if _within(middle, freedom) < level:
            low = middle
        else:
            high = middle
    return math.tan(low) * math.sqrt(freedom)


def _within(angle: float, freedom: int) -> float:
    """The chance that |T| is at most sqrt(freedom) tan(angle)."""
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= math.cos(angle) ** 2 * power / (power + 1)
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total
