"""A run's rounds, as many of them as a picture shows.

A run may have a hundred thousand rounds of a thousand clients each, and a page a hundred such runs: lines of rounds
that are not drawn are counted and not read, but for the bytes sent in them, which are summed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accord.errors import DataError
from accord.wire.files import no_links
from accord.wire.lines import BOUNDS
from accord.wire.records import parse

Record = dict[str, Any]
SENT = re.compile(rb'"(?:start_)?bytes_(?:up|down)": (\d+)')
# Lists of numbers: most of a line, and slow to read. Quotes inside texts are escaped, so it matches no text.
BY_CLIENT = re.compile(rb', "(?:cohort|clients|each_client|deciles)": \[[^][]*\]')
DEEP = 2  # names within names: clients/worst


@dataclass(frozen=True)
class History:
    """Some rounds of a run, the last one among them, and what lies between them in sums."""

    records: Sequence[Record]
    sent: Sequence[int]  # bytes of all rounds up to each of them
    seconds: Sequence[float]  # likewise
    phases: Mapping[str, float]  # seconds of all rounds by phase
    rounds: int  # that are done

    @property
    def numbers(self) -> list[int]:
        """Which rounds they are."""
        return [int(record["round"]) for record in self.records]

    def values(self) -> dict[str, list[float | None]]:
        """Every number that rounds have, by name; None in rounds without it."""
        names = dict.fromkeys(name for record in self.records for name, _ in _numbers(record))
        found: dict[str, list[float | None]] = {name: [] for name in names if name != "round"}
        for record in self.records:
            known = dict(_numbers(record))
            for name, column in found.items():
                column.append(known.get(name))
        return found


def read_history(folder: Path, points: int, whole: int) -> History:
    """At most about `points` rounds of a run that is over or goes on; DataError where its log cannot be read.

    What rounds hold client by client is read of at most about `whole` of them.
    """
    raw = read_lines(folder / "metrics.jsonl")
    drawn = sorted(chosen(len(raw), points))
    with_clients = {drawn[i] for i in chosen(len(drawn), whole)} if whole else set()
    records, sent, total, wanted = [], [], 0, set(drawn)
    for number, line in enumerate(raw):
        total += sum(int(found[1]) for found in SENT.finditer(line))
        if number in wanted:
            told = line if number in with_clients else BY_CLIENT.sub(b"", line)
            records.append(_record(folder / "metrics.jsonl", number, told))
            sent.append(total)
    seconds, phases = _seconds(folder, [int(record["round"]) for record in records])
    return History(records, sent, seconds, phases, int(records[-1]["round"]) if records else 0)


def read_lines(path: Path) -> list[bytes]:
    """Whole lines; the last one may be about to be written."""
    try:
        with open(path, "rb", opener=no_links) as file:
            raw = file.read().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    return raw if not raw or raw[-1].endswith(b"\n") else raw[:-1]


def chosen(count: int, points: int) -> set[int]:
    """Evenly spread positions, the first and the last among them."""
    if points < 2 or count <= points:
        return set(range(count))
    return {round(i * (count - 1) / (points - 1)) for i in range(points)}


def _record(path: Path, number: int, line: bytes) -> Record:
    try:
        record: Record = parse(line, BOUNDS, "it")
    except DataError as error:
        raise DataError(f"{path}: line {number + 1} is damaged ({error}); put back a sound copy") from error
    return record


def _seconds(folder: Path, rounds: Sequence[int]) -> tuple[list[float], dict[str, float]]:
    """Up to each of these rounds, and by phase. Seconds are no result: lines that cannot be read are passed over."""
    phases: dict[str, float] = {}
    up_to: dict[int, float] = {}
    total = 0.0
    for line in read_lines(folder / "timings.jsonl"):
        try:
            laps = {name: float(value) for name, value in parse(line, BOUNDS, "it").items()}
            round = int(laps.pop("round"))
        except (DataError, KeyError, TypeError, ValueError):
            continue
        for name, value in laps.items():
            phases[name] = phases.get(name, 0.0) + value
            total += value
        up_to[round] = total
    known, latest = [], 0.0
    for round in rounds:
        latest = up_to.get(round, latest)
        known.append(latest)
    return known, phases


def _numbers(record: Mapping[str, Any], prefix: str = "", depth: int = DEEP) -> Iterator[tuple[str, float]]:
    for name, value in record.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)
        elif isinstance(value, Mapping) and depth > 1:
            yield from _numbers(value, f"{prefix}{name}/", depth - 1)
