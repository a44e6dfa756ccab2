"""A paper's table with our numbers beside the printed ones: differences, and whether the order of methods holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from accord.papers.experiment import Column, Experiment, Place, Row, Scale
from accord.papers.printed import Printed
from accord.papers.records import Record, Records
from accord.report.tables import Estimate, estimate


@dataclass(frozen=True)
class Cell:
    """What was printed, and what our runs gave."""

    printed: Printed
    ours: Estimate | None
    records: Sequence[Record]

    @property
    def rounds(self) -> int:
        """The round up to which all of its runs came; 0 without any."""
        return min((record.rounds_done for record in self.records), default=0)

    @property
    def difference(self) -> float | None:
        """Ours less the printed one."""
        return None if self.ours is None or self.printed.value is None else self.ours.mean - self.printed.value

    @property
    def diverged(self) -> bool:
        """Whether the training of a run did."""
        return any(record.failed for record in self.records)


@dataclass(frozen=True)
class Order:
    """Whether the methods stand in the paper's order in a column, among the rows that ran equally long."""

    compared: int  # rows with both numbers
    pairs: int  # of rows that differ in the paper
    kept: int  # of these, in the same order here
    best_printed: bool  # the paper's own method leads there
    best_ours: bool  # and here
    lead_printed: float | None  # of the own method over the baseline; positive is better
    lead_ours: float | None


@dataclass(frozen=True)
class Table:
    """All rows and columns of an experiment."""

    experiment: Experiment
    cells: Mapping[tuple[str, str], Cell]  # by row and column; only where the row is part of the column's setting
    scale: Scale = "full"

    @classmethod
    def of(cls, experiment: Experiment, records: Records, seeds: Sequence[int], scale: Scale = "full") -> Table:
        """Filled with the records that answer its questions. Seeds that were never run are left out."""
        places = experiment.places[:1] if scale == "smoke" else experiment.places
        cells: dict[tuple[str, str], Cell] = {}
        for place in places:
            for row in experiment.rows:
                if experiment.holds(row, place):
                    known = _records(experiment, row, place, records, seeds, scale)
                    columns = [column for column in experiment.columns if column.place is place]
                    cells |= {(row.name, column.key): cell(row, column, known) for column in columns}
        return cls(experiment, cells, scale)

    @cached_property
    def columns(self) -> list[Column]:
        """Those that have cells."""
        return [c for c in self.experiment.columns if any(key == c.key for _, key in self.cells)]

    @cached_property
    def records(self) -> list[Record]:
        """All that are in it, each once."""
        found = {record.path: record for one in self.cells.values() for record in one.records}
        return [found[path] for path in sorted(found)]

    def rounds(self, column: Column) -> int:
        """How far the furthest rows of a column came."""
        return max((cell.rounds for (_, key), cell in self.cells.items() if key == column.key), default=0)

    def order(self, column: Column) -> Order | None:
        """None where no two rows can be compared."""
        furthest, sign = self.rounds(column), 1 if column.number.better == "higher" else -1
        both = {
            row: (sign * cell.printed.value, sign * cell.ours.mean)
            for (row, key), cell in self.cells.items()
            if key == column.key and cell.rounds == furthest and cell.ours is not None
            if cell.printed.value is not None
        }
        return order(both, self.experiment.own, self.experiment.baseline) if len(both) > 1 else None


def order(both: Mapping[str, tuple[float, float]], own: str, baseline: str) -> Order:
    """By row the printed number and ours, larger is better."""
    pairs = [(a, b) for a, b in combinations(both.values(), 2) if a[0] != b[0]]
    kept = sum((a[0] - b[0]) * (a[1] - b[1]) > 0 for a, b in pairs)
    leads: list[float | None] = [None, None]
    if own in both and baseline in both and own != baseline:
        leads = [both[own][i] - both[baseline][i] for i in (0, 1)]
    best = [own in both and both[own][i] == max(pair[i] for pair in both.values()) for i in (0, 1)]
    return Order(len(both), len(pairs), kept, best[0], best[1], leads[0], leads[1])


def cell(row: Row, column: Column, records: Sequence[Record]) -> Cell:
    """Mean and deviation over the runs that came equally far; rounds to a target count only where all reached it."""
    furthest = max((record.rounds_done for record in records), default=0)
    whole = [record for record in records if record.rounds_done == furthest]
    values = [column.number.of(record.fields) for record in whole]
    reached = column.number.target is None or None not in values
    return Cell(row.printed[column.key], estimate(values) if reached else None, whole)


def _records(
    experiment: Experiment, row: Row, place: Place, records: Records, seeds: Sequence[int], scale: Scale
) -> list[Record]:
    """Those of a row in a place, at most as long as the scale's runs are."""
    if experiment.obstacle(row, place):
        return []
    found = []
    for seed in seeds:
        config = experiment.config(row, place, seed, scale)
        record = records.find(config)
        if record is not None:
            found.append(record.until(config.rounds))
    return found
