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
    """What was printed, and what our runs gave: the mean over those that went furthest."""

    printed: Printed
    ours: Estimate | None
    records: Sequence[Record]  # those of the mean
    shorter: Sequence[Record] = ()  # of seeds that did not get as far
    diverged: Sequence[Record] = ()

    @property
    def all(self) -> list[Record]:
        """Every record, whether it counts or not."""
        return [*self.records, *self.shorter, *self.diverged]

    @property
    def rounds(self) -> int:
        """How far its runs came; 0 without any."""
        return max((record.rounds_done for record in self.records or self.diverged), default=0)

    @property
    def difference(self) -> float | None:
        """Ours less the printed one."""
        return None if self.ours is None or self.printed.value is None else self.ours.mean - self.printed.value


@dataclass(frozen=True)
class Order:
    """Whether the methods stand in the paper's order in a column, at a round that all of them reached."""

    at: int
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
        found = {record.path: record for one in self.cells.values() for record in one.all}
        return [found[path] for path in sorted(found)]

    def of_column(self, column: Column) -> dict[str, Cell]:
        """Its cells by row."""
        return {row: cell for (row, key), cell in self.cells.items() if key == column.key}

    def has(self, column: Column) -> bool:
        """Whether anything was run of a column."""
        return any(cell.all for cell in self.of_column(column).values())

    def rounds(self, column: Column) -> int:
        """How far the furthest rows of a column came."""
        return max((cell.rounds for cell in self.of_column(column).values()), default=0)

    def common(self, column: Column) -> int:
        """The round at which rows are put in order: the last that both own method and baseline reached."""
        cells = self.of_column(column)
        named = (self.experiment.own, self.experiment.baseline)
        least = min((cells[name].rounds for name in named if name in cells), default=0)
        return least or self.rounds(column)

    def order(self, column: Column) -> Order | None:
        """None where no two rows can be compared."""
        at, sign = self.common(column), 1 if column.number.better == "higher" else -1
        both = {}
        for row, cell in self.of_column(column).items():
            ours = estimate(column.number.of(r.until(at).fields) for r in cell.all if r.rounds_done >= at)
            if ours is not None and cell.printed.value is not None:
                both[row] = (sign * cell.printed.value, sign * ours.mean)
        return order(at, both, self.experiment.own, self.experiment.baseline) if len(both) > 1 else None


def order(at: int, both: Mapping[str, tuple[float, float]], own: str, baseline: str) -> Order:
    """By row the printed number and ours, larger is better."""
    pairs = [(a, b) for a, b in combinations(both.values(), 2) if a[0] != b[0]]
    kept = sum((a[0] - b[0]) * (a[1] - b[1]) > 0 for a, b in pairs)
    leads: list[float | None] = [None, None]
    if own in both and baseline in both and own != baseline:
        leads = [both[own][i] - both[baseline][i] for i in (0, 1)]
    best = [own in both and both[own][i] == max(pair[i] for pair in both.values()) for i in (0, 1)]
    return Order(at, len(both), len(pairs), kept, best[0], best[1], leads[0], leads[1])


def cell(row: Row, column: Column, records: Sequence[Record]) -> Cell:
    """Mean and deviation over the runs that came equally far; rounds to a target count only where all reached it."""
    sound = [record for record in records if not record.diverged]
    furthest = max((record.rounds_done for record in sound), default=0)
    whole = [record for record in sound if record.rounds_done == furthest]
    values = [column.number.of(record.fields) for record in whole]
    reached = column.number.target is None or None not in values
    return Cell(
        row.printed[column.key],
        estimate(values) if reached else None,
        whole,
        [record for record in sound if record.rounds_done < furthest],
        [record for record in records if record.diverged],
    )


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
        if record is not None and (
            not experiment.like or record.shows(config)
        ):  # another view must have been looked at
            found.append(record.until(config.rounds))
    return found
