"""Summaries of runs as rows, mean and deviation over seeds: as Markdown, on a terminal, as JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from accord.measures import MEASURES, Column
from accord.report.sizes import human_bytes

if TYPE_CHECKING:
    from rich.table import Table

Summary = Mapping[str, Any]


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


class _Sent(Column):
    """Bytes in both directions."""

    def find(self, summary: Summary) -> Any:
        up, down = summary.get("bytes_up"), summary.get("bytes_down")
        return None if up is None or down is None else up + down


def _bytes(value: float) -> str:
    return human_bytes(round(value))


def _seconds(value: float) -> str:
    return f"{value:.1f}"


COSTS = (
    Column("bytes_down", "sent to clients", ("bytes_down",), _bytes, "lower", compared=False),
    Column("bytes_up", "sent by clients", ("bytes_up",), _bytes, "lower", compared=False),
    _Sent("bytes", "sent", (), _bytes, "lower"),
    Column("seconds", "seconds", ("seconds",), _seconds, "lower"),
)


def columns() -> list[Column]:
    """All that the measures have, then what a run cost."""
    return [*(column for measure in MEASURES.values() for column in measure.columns), *COSTS]


def aggregate(summaries: Iterable[Summary]) -> list[Row]:
    """One row per algorithm, in the order they first appear."""
    compared = [column for column in columns() if column.compared]
    groups: dict[str, list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(str(summary["algorithm"]), []).append(summary)
    return [
        Row(
            algorithm,
            tuple(int(summary["seed"]) for summary in group),
            {c.key: cell for c in compared if (cell := estimate(c.find(s) for s in group)) is not None},
        )
        for algorithm, group in groups.items()
    ]


def estimate(values: Iterable[Any]) -> Estimate | None:
    """Mean and deviation of the numbers among `values`; None when there are none."""
    known = [float(v) for v in values if isinstance(v, (int, float)) and math.isfinite(v)]
    if not known:
        return None
    return Estimate(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))


def shown_columns(rows: Sequence[Row]) -> list[Column]:
    """Those that a row has a value for."""
    return [c for c in columns() if any(c.key in row.cells for row in rows)]


def _cell(column: Column, row: Row) -> str:
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


def written_cells(rows: Sequence[Row]) -> Iterator[list[tuple[str, bool]]]:
    """Row by row, each cell's text and whether it is the best of its column."""
    shown = [(column, _best(column, rows)) for column in shown_columns(rows)]
    for row in rows:
        yield [
            (_cell(c, row), best is not None and c.key in row.cells and c.write(row.cells[c.key].mean) == best)
            for c, best in shown
        ]


def markdown(rows: Sequence[Row]) -> str:
    """A Markdown table with a line that says what the numbers are; the best of a column are in bold."""
    titles = [column.title for column in shown_columns(rows)]
    lines = [
        "| algorithm | runs | " + " | ".join(titles) + " |",
        "|---|---|" + "---|" * len(titles),
    ]
    for row, cells in zip(rows, written_cells(rows), strict=True):
        name = row.algorithm.replace("|", "\\|")
        texts = [f"**{text}**" if best else text for text, best in cells]
        lines.append(f"| {name} | {len(row.seeds)} | " + " | ".join(texts) + " |")
    lines += ["", "Mean ± sample standard deviation over seeds; top-5 rounds: mean of the five best rounds."]
    return "\n".join(lines) + "\n"


def rich_table(rows: Sequence[Row], most: int | None = None) -> Table:
    """The same for a terminal; `most` leaves out columns beyond so many, and says which."""
    from rich.table import Table
    from rich.text import Text

    columns = shown_columns(rows)
    left_out = ", ".join(column.title for column in columns[most:]) if most is not None else ""
    caption = "mean ± sample standard deviation over seeds" + (f"; not shown: {left_out}" if left_out else "")
    table = Table(caption=caption, caption_justify="left")
    table.add_column("algorithm")
    table.add_column("runs", justify="right")
    for column in columns[:most]:
        table.add_column(column.title, justify="right")
    for row, cells in zip(rows, written_cells(rows), strict=True):
        texts = [Text(text, style="bold" if best else "") for text, best in cells[:most]]
        table.add_row(Text(row.algorithm), Text(str(len(row.seeds))), *texts)
    return table


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
    values = [(column, column.find(summary)) for column in columns() if column.key != "bytes"]
    shown = [(column.title, column.write(value)) for column, value in values if estimate([value]) is not None]
    reached = summary.get("rounds_to") or {}
    shown += [(f"rounds to {100 * float(t):g} %", str(r)) for t, r in reached.items() if r is not None]
    return shown
