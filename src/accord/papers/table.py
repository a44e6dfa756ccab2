"""A paper's table with our numbers beside the printed ones: differences, and whether the order of methods holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import fmean

from accord.papers import numbers
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
    """Whether the methods stand in the paper's order in a column, at a round that all of them reached.

    Two of them are compared over the seeds both have: seeds differ by more than methods do.
    """

    at: int
    compared: int  # rows with both numbers
    pairs: int  # of rows that differ in the paper and have a seed in common
    kept: int  # of these, in the same order here
    best_printed: bool  # the paper's own method leads there, or shares the lead, and can be compared here
    best_ours: bool | None  # it leads here; None: it shares the lead
    lead_printed: float | None  # of the own method over the baseline; positive is better
    lead_ours: float | None


@dataclass(frozen=True)
class Table:
    """All rows and columns of an experiment."""

    experiment: Experiment
    cells: Mapping[tuple[str, str], Cell]  # by row and column; only where the row is part of the column's setting
    scale: Scale = "full"

    @classmethod
    def of(
        cls,
        experiment: Experiment,
        records: Records,
        seeds: Sequence[int],
        scale: Scale = "full",
        chosen: Sequence[str] = (),
    ) -> Table:
        """Filled with the records that answer its questions. Seeds that were never run are left out.

        A smoke test has one place: the first, or the first of those `chosen`.
        """
        places = [place for place in experiment.places if not chosen or place.name in chosen]
        places = places[:1] if scale == "smoke" else experiment.places
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

    @property
    def runs(self) -> tuple[int, int]:
        """How many of its rows were run in how many of its federations, whether to the end or not; and all of these."""
        place = {column.key: column.place.name for column in self.columns}
        done = {(row, place[key]) for (row, key), cell in self.cells.items() if cell.all}
        return len(done), len({(row, place[key]) for row, key in self.cells})

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
        printed, ours = {}, {}
        for row, cell in self.of_column(column).items():
            values = by_seed(column, cell.all, at)
            if values and cell.printed.value is not None:
                printed[row] = sign * cell.printed.value
                ours[row] = {seed: sign * value for seed, value in values.items()}
        return order(at, printed, ours, self.experiment.own, self.experiment.baseline) if len(ours) > 1 else None


def by_seed(column: Column, records: Iterable[Record], at: int) -> dict[int, float]:
    """A column's number of each seed that got to a round, read there; not where it has none."""
    found = {record.seed: column.number.of(record.until(at).fields) for record in records if record.rounds_done >= at}
    return {seed: value for seed, value in found.items() if value is not None}


def ahead(first: Mapping[int, float], second: Mapping[int, float]) -> float | None:
    """By how much on average, over the seeds both have."""
    common = first.keys() & second.keys()
    return fmean(first[seed] - second[seed] for seed in common) if common else None


def order(
    at: int, printed: Mapping[str, float], ours: Mapping[str, Mapping[int, float]], own: str, baseline: str
) -> Order:
    """By row the printed number, and ours by seed; larger is better."""
    gaps = [(printed[a] - printed[b], ahead(ours[a], ours[b])) for a, b in combinations(ours, 2)]
    pairs = [(theirs, here) for theirs, here in gaps if theirs != 0 and here is not None]
    kept = sum(theirs * here > 0 for theirs, here in pairs)
    leads: list[float | None] = [None, None]
    if own in ours and baseline in ours and own != baseline:
        leads = [printed[own] - printed[baseline], ahead(ours[own], ours[baseline])]
    over = [ahead(ours[own], others) for row, others in ours.items() if own in ours and row != own]
    known = [lead for lead in over if lead is not None]
    best_printed = bool(known) and printed[own] == max(printed.values())
    best_ours = None if known and min(known) == 0 else bool(known) and min(known) > 0
    return Order(at, len(ours), len(pairs), kept, best_printed, best_ours, leads[0], leads[1])


def cell(row: Row, column: Column, records: Sequence[Record]) -> Cell:
    """Mean and deviation over the runs that came equally far; rounds to a target count only where all reached it."""
    records = [read_as(row.accuracy or column.accuracy, record) for record in records]
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
            found.append(record.until(config.rounds).every(config.evaluate.every))
    return found


def read_as(accuracy: str, record: Record) -> Record:
    """The run with another value of its evaluations in the place of its accuracy; itself where it is that."""
    if accuracy == "accuracy":
        return record
    path, _ = numbers.VALUES[accuracy]
    seen = [{**one, "accuracy": numbers.found(one, path)} for one in record.fields["evaluations"]]
    return Record(record.path, {**record.fields, "evaluations": seen})
