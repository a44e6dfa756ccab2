"""Which number of a run is the one in a paper's cell.

A column names it: `accuracy`, `client best`, `client worst`, `client mean`, `client std`, `personal`, `local on
global`, `map`, `retrieval` or `retrieval std` (mAP of queries in a gallery), each `over` the `last N` evaluations
(their mean), the `top N` of them, or the `best` one; `steady client best`, `worst` and `std`, over clients of each
one's mean over the last ten evaluations; `rounds to T`; `parameters` (millions a client is sent in a round); `seconds
a round` (of the device); `newcomer epochs`.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from accord.errors import ConfigError
from accord.measures.accuracy import rounds_to

Evaluation = Mapping[str, Any]
Record = Mapping[str, Any]
Better = Literal["higher", "lower"]
Unit = Literal["percent", "share", "rounds", "plain"]

NEAR = 0.001  # of the best accuracy: where a newcomer's fine-tuning counts as converged

# Where a value lies in an evaluation, and which values are the better ones.
VALUES: Mapping[str, tuple[tuple[str, ...], Better]] = {
    "accuracy": (("accuracy",), "higher"),
    "client best": (("clients", "best"), "higher"),
    "client worst": (("clients", "worst"), "higher"),
    "client mean": (("clients", "mean"), "higher"),
    "client std": (("clients", "std"), "lower"),
    "personal": (("personal", "mean"), "higher"),
    "local on global": (("local_on_global", "mean"), "higher"),
    "map": (("map",), "higher"),
    "retrieval": (("retrieval", "map"), "higher"),
    "retrieval std": (("retrieval", "clients", "std"), "lower"),
    "update cosine": (("drift", "mean"), "higher"),
}
# Where one lies in a record: what no evaluation has alone.
OF_THE_RUN: Mapping[str, tuple[tuple[str, ...], Better]] = {
    "steady client best": (("summary", "steady_clients", "best"), "higher"),
    "steady client worst": (("summary", "steady_clients", "worst"), "higher"),
    "steady client std": (("summary", "steady_clients", "std"), "lower"),
}
_OVER = re.compile(r"(last|top) ([1-9][0-9]*)|best")
_TARGET = re.compile(r"rounds to (0?\.[0-9]+)")


def found(value: Any, path: Sequence[str]) -> float | None:
    """The number at the end of a path of keys, if it is there."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class Number:
    """A metric and what is taken of its values over rounds."""

    metric: str
    over: str = "last 1"
    unit: Unit = "percent"

    def __post_init__(self) -> None:
        known = [*VALUES, *OF_THE_RUN, *COSTS]
        if self.metric not in known and self.target is None:
            raise ConfigError(f"metric {self.metric!r} is unknown. Allowed: {', '.join([*known, 'rounds to 0.8'])}.")
        if _OVER.fullmatch(self.over) is None:
            raise ConfigError(f"over = {self.over!r}: must be 'last N', 'top N' or 'best'")

    @property
    def target(self) -> float | None:
        """The accuracy to be reached, where rounds are counted."""
        match = _TARGET.fullmatch(self.metric)
        return float(match[1]) if match else None

    @property
    def better(self) -> Better:
        """Which of two values is the better one."""
        return next((known[self.metric][1] for known in (VALUES, OF_THE_RUN) if self.metric in known), "lower")

    def of(self, record: Record) -> float | None:
        """The cell's number of one run, in the unit the paper prints; None: not measured, or never reached."""
        if self.target is not None:
            history = {e["round"]: e["accuracy"] for e in record["evaluations"] if e.get("accuracy") is not None}
            reached = rounds_to(history, [self.target])[self.target]
            return None if reached is None else float(reached)
        if self.metric in COSTS:
            return COSTS[self.metric](record)
        share = self._share(record)
        return share if share is None or self.unit != "percent" else 100 * share

    def _share(self, record: Record) -> float | None:
        if self.metric in OF_THE_RUN:
            return found(record, OF_THE_RUN[self.metric][0])
        if self.metric == "personal":  # of all clients at the end, where that was kept
            end = found(record, ("summary", "personal_accuracy", "mean"))
            if end is not None or record.get("broke_off"):  # broke off: not what it would have been at the end
                return end
        path, better = VALUES[self.metric]
        values = [value for one in record["evaluations"] if (value := found(one, path)) is not None]
        if not values:
            return None
        kind, _, count = self.over.partition(" ")
        if kind == "last":
            return statistics.fmean(values[-int(count) :])
        return statistics.fmean(sorted(values, reverse=better == "higher")[: int(count or 1)])

    def write(self, value: float) -> str:
        """With the digits papers print.

        >>> Number("accuracy").write(64.1234), Number("accuracy", unit="share").write(0.641234)
        ('64.12', '0.6412')
        """
        digits = {"percent": 2, "share": 4, "rounds": 0, "plain": 2}[self.unit]
        return f"{value:.{digits}f}"


def _parameters(record: Record) -> float | None:
    """Millions of 32-bit numbers a client is sent in a round."""
    down, asked = found(record, ("summary", "bytes_down")), found(record, ("summary", "asked"))
    return down / asked / 4e6 if down is not None and asked else None


def _seconds(record: Record) -> float | None:
    """Of the device, where runs shared one and that was noted; otherwise on the clock."""
    done = record.get("rounds_done")
    return (record.get("gpu_seconds") or record["seconds"]) / done if done else None


def _newcomer(record: Record) -> float | None:
    """The first epoch that is within a tenth of a point of the best."""
    curve = ((record.get("summary") or {}).get("unseen") or {}).get("accuracy_after_epochs")
    if not curve:
        return None
    return float(next(epoch for epoch, value in enumerate(curve) if value >= max(curve) - NEAR))


COSTS: Mapping[str, Callable[[Record], float | None]] = {
    "parameters": _parameters,
    "seconds a round": _seconds,
    "newcomer epochs": _newcomer,
}
