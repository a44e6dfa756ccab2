"""Summaries of runs as rows, mean and deviation over seeds: as Markdown and as JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accord.measures import MEASURES, Column
from accord.measures.column import column_of
from accord.report.sizes import human_bytes

Summary = Mapping[str, Any]
BETTER = "✓"


@dataclass(frozen=True)
class Estimate:
    """A mean over runs; `std` is the sample standard deviation (divided by n - 1), None for a single run."""

    mean: float
    std: float | None
    runs: int


@dataclass(frozen=True)
class Row:
    """One algorithm over its seeds; a column without any value is left out of `cells`."""

    algorithm: str
    seeds: tuple[int, ...]
    cells: Mapping[str, Estimate] = field(default_factory=dict)
    own: Sequence[Column] = field(default=(), repr=False)  # columns of measures that have no entry here


class _Sent(Column):
    """Bytes in both directions."""

    def find(self, summary: Summary) -> Any:
        up, down = summary.get("bytes_up"), summary.get("bytes_down")
        return None if up is None or down is None else up + down


def _bytes(value: float) -> str:
    return human_bytes(round(value))


def _seconds(value: float) -> str:
    return f"{value:.1f}"


def _count(value: float) -> str:
    return f"{value:.0f}"


COSTS = (
    Column("bytes_down", "sent to clients", ("bytes_down",), _bytes, "lower", compared=False),
    Column("bytes_up", "sent by clients", ("bytes_up",), _bytes, "lower", compared=False),
    _Sent("bytes", "sent", (), _bytes, "lower"),
    Column("late", "late answers", ("late",), _count, "lower", compared=False),
    Column("not_waited_for", "answers not waited for", ("not_waited_for",), _count, "lower", compared=False),
    Column("clock", "clock (s)", ("clock",), _seconds, "lower"),
    Column("seconds", "seconds", ("seconds",), _seconds, "lower"),
)


def columns(own: Iterable[Column] = ()) -> list[Column]:
    """All that the measures have, those of somebody's own, then what a run cost."""
    known = {column.key: column for measure in MEASURES.values() for column in measure.columns}
    return [*(known | {column.key: column for column in own if column.key not in known}).values(), *COSTS]


def own_columns(summaries: Iterable[Summary]) -> list[Column]:
    """Those that the summaries bring with them: of measures that were handed to a run."""
    brought = [summary.get("columns") for summary in summaries]
    found = [column_of(record) for records in brought if isinstance(records, list) for record in records]
    return [column for column in found if column is not None]


def aggregate(summaries: Iterable[Summary]) -> list[Row]:
    """One row per algorithm, in the order they first appear."""
    summaries = list(summaries)
    own = own_columns(summaries)
    compared = [column for column in columns(own) if column.compared]
    groups: dict[str, list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(str(summary["algorithm"]), []).append(summary)
    return [
        Row(
            algorithm,
            tuple(int(summary["seed"]) for summary in group),
            {c.key: cell for c in compared if (cell := estimate(c.find(s) for s in group)) is not None},
            own,
        )
        for algorithm, group in groups.items()
    ]


def estimate(values: Iterable[Any]) -> Estimate | None:
    """Mean and deviation of the numbers among `values`; None when there are none."""
    known = [float(v) for v in values if isinstance(v, (int, float)) and math.isfinite(v)]
    if not known:
        return None
    return Estimate(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))


def shown(rows: Sequence[Row]) -> list[Column]:
    """The columns in which some row has a value; those that stand beside another are there where it is."""
    own = [column for row in rows for column in row.own]
    known = {c.key: c for c in columns(own) if any(c.key in row.cells for row in rows)}
    found = [column for column in known.values() if not column.beside]
    for column in known.values():
        if column.beside in known:
            found.insert(found.index(known[column.beside]), column)
    return found


def written(column: Column, row: Row) -> str:
    """A cell's text."""
    cell = row.cells.get(column.key)
    if cell is None:
        return "-"
    text = column.write(cell.mean)
    if cell.std is None or (column.key == "bytes" and not cell.std):  # what is sent seldom depends on the seed
        return text
    return f"{text} ± {column.write(cell.std)}"


def _best(column: Column, rows: Sequence[Row]) -> str | None:
    """The best mean as it is written; None where there is no telling, or all are alike."""
    means = [row.cells[column.key].mean for row in rows if column.key in row.cells]
    best = column.write(max(means) if column.better == "higher" else min(means))
    return best if column.better and any(column.write(mean) != best for mean in means) else None


def _marks(columns: Sequence[Column], row: Row) -> set[str]:
    """Of two columns side by side, which are the same number of two models, the better one's key."""
    marks = set()
    for column in columns:
        pair = [one for one in columns if one.key in (column.key, column.beside) and one.key in row.cells]
        if column.beside and len({one.write(row.cells[one.key].mean) for one in pair}) == 2:
            choose = max if column.better == "higher" else min
            marks.add(choose(pair, key=lambda one: row.cells[one.key].mean).key)
    return marks


def cells(rows: Sequence[Row], columns: Sequence[Column]) -> Iterator[list[tuple[str, bool]]]:
    """Row by row, each cell's text and whether it is the best of its column."""
    best_of = [(column, _best(column, rows)) for column in columns]
    for row in rows:
        marks = _marks(columns, row)
        yield [
            (
                written(c, row) + (f" {BETTER}" if c.key in marks else ""),
                best is not None and c.key in row.cells and c.write(row.cells[c.key].mean) == best,
            )
            for c, best in best_of
        ]


def remarks(columns: Sequence[Column]) -> str:
    """What the marks of a table mean."""
    paired = any(column.beside for column in columns)
    return f"; {BETTER}: the better of a method's global and personal models at its clients" if paired else ""


def unmeasured(rows: Sequence[Row]) -> str:
    """A sentence where some methods have personal models measured and others have not."""
    key = next((column.beside for column in shown(rows) if column.beside), "")
    without = [row.algorithm for row in rows if key and key not in row.cells]
    if not without:
        return ""
    return f"No personal models were measured of {', '.join(without)}: --set evaluate.personal=true does it for all."


def markdown(rows: Sequence[Row]) -> str:
    """A Markdown table with a line that says what the numbers are; the best of a column are in bold."""
    columns = shown(rows)
    lines = [
        "| algorithm | runs | " + " | ".join(column.title for column in columns) + " |",
        "|---|---|" + "---|" * len(columns),
    ]
    for row, texts in zip(rows, cells(rows, columns), strict=True):
        name = row.algorithm.replace("|", "\\|")
        lines.append(
            f"| {name} | {len(row.seeds)} | " + " | ".join(f"**{t}**" if best else t for t, best in texts) + " |"
        )
    note = f"Mean ± sample standard deviation over seeds; top-5 rounds: mean of the five best rounds{remarks(columns)}."
    return "\n".join([*lines, "", note]) + "\n"


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as plain values."""
    return [
        {
            "algorithm": row.algorithm,
            "seeds": list(row.seeds),
            **{key: {"mean": e.mean, "std": e.std, "runs": e.runs} for key, e in row.cells.items()},
        }
        for row in rows
    ]


def run_lines(summary: Summary) -> list[tuple[str, str]]:
    """The end of a single run, line by line; what was not measured is left out."""
    values = [(column, column.find(summary)) for column in columns(own_columns([summary])) if column.key != "bytes"]
    lines = [(column.title, column.write(value)) for column, value in values if estimate([value]) is not None]
    reached = summary.get("rounds_to") or {}
    lines += [(f"rounds to {100 * float(t):g} %", str(r)) for t, r in reached.items() if r is not None]
    clock = summary.get("clock_to") or {}
    lines += [(f"clock to {100 * float(t):g} %", f"{s:.1f} s") for t, s in clock.items() if s is not None]
    return lines
