"""What a page says of single runs: those that broke off, and how far two equal ones are apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import fmean

from accord.papers.numbers import VALUES, found
from accord.papers.records import Record, Records
from accord.papers.table import Table

SAID = """\
They differ in rounding alone, some also in the version of Accord. Tables show the one that went furthest, of those the
newer one. Means over the rounds both evaluated, in points: what no difference between methods should be smaller than.
Version 0.1 drew other batches: what a newer run stands for is named and not compared."""
_WHERE = re.compile(r"training diverged in round (\d+)(?: on client (\d+))?")


def _families(tables: Sequence[Table], records: Records) -> Iterator[list[Record]]:
    """All runs of one configuration and seed, for each that is in a table."""
    used = {record.path for table in tables for record in table.records}
    for known in records.by_question.values():
        if any(record.path in used for record in known):
            yield list(known)


def _name(record: Record) -> str:
    fields = record.fields
    place = f" in {fields['place']}" if fields.get("place") else ""
    return f"{fields.get('experiment')}/{fields.get('row')}{place}"


def _how(record: Record) -> str:
    config = record.config
    return f"{config.executor}, {config.precision}{', compiled' if config.compile else ''}"


def broken(tables: Sequence[Table], records: Records) -> list[str]:
    """Every run whose training diverged, repeats too: where it did, and how it was carried out."""
    lines = []
    for known in _families(tables, records):
        for record in known:
            where = _WHERE.search(record.broke_off)
            if where:
                client = where[2] or "none: the server's step"
                lines.append(f"| {_name(record)} | {record.seed} | {_how(record)} | {where[1]} | {client} |")
    head = ["| run | seed | clients trained | diverged in round | on client |", "|---|---|---|---|---|"]
    return ["\n".join([*head, *sorted(lines)])] if lines else []


def repeats(tables: Sequence[Table], records: Records) -> list[str]:
    """How far equal runs are apart."""
    lines = []
    for known in _families(tables, records):
        for first, second in combinations(known, 2):
            gaps = apart(first, second, "accuracy")
            if gaps:
                hows = " / ".join(dict.fromkeys((_how(first), _how(second))))
                where = f"{_name(first)} | {first.seed} | {hows} | {min(gaps)} to {max(gaps)}"
                cells = [f"{fmean(gaps.values()):.1f}", f"{max(gaps.values()):.1f}"]
                for metric in ("client worst", "client std"):
                    spread = apart(first, second, metric)
                    cells.append(f"{fmean(spread.values()):.1f}" if spread else "-")
                lines.append(f"| {where} | {' | '.join(cells if first.old == second.old else ['-'] * 4)} |")
    head = ["run", "seed", "clients trained", "rounds", "accuracy", "its largest", "worst client", "std over clients"]
    return [SAID, "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *sorted(lines)])] if lines else []


def apart(first: Record, second: Record, metric: str) -> dict[int, float]:
    """Points between two runs, at the rounds both evaluated."""
    path, _ = VALUES[metric]
    one, other = (
        {e["round"]: value for e in record.fields["evaluations"] if (value := found(e, path)) is not None}
        for record in (first, second)
    )
    return {round: 100 * abs(one[round] - other[round]) for round in one.keys() & other.keys()}
