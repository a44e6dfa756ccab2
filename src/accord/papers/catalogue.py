"""All experiments in short: what they are, and how many of their runs were begun."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from accord.papers import shelf
from accord.papers.records import Records
from accord.papers.reproduction import RESULTS, seeds_of
from accord.papers.table import Table


@dataclass(frozen=True)
class Line:
    """One experiment."""

    id: str
    paper: str
    title: str
    what: str
    runs: int  # rows in federations
    begun: int


def overview(results: Path | str = RESULTS) -> list[Line]:
    """Of all experiments, with the records in `results`."""
    records = Records.of([Path(results)])
    lines = []
    for one in shelf.experiments():
        table = Table.of(one, records, seeds_of(records))
        begun, runs = table.runs
        lines.append(Line(one.id, one.paper, one.title, one.what, runs, begun))
    return lines
