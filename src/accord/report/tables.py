"""Summaries of runs as rows, mean and deviation over seeds: as Markdown, on a terminal, as JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from accord.metrics.communication import human_bytes

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


@dataclass(frozen=True)
class Column:
    """A column: where its number is found in a summary, and how it is written."""

    key: str
    title: str
    find: Callable[[Summary], Any]
    write: Callable[[float], str]


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _bytes(value: float) -> str:
    return human_bytes(round(value))


def _seconds(value: float) -> str:
    return f"{value:.1f}"


def _at(*path: str) -> Callable[[Summary], Any]:
    def find(summary: Summary) -> Any:
        value: Any = summary
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    return find


def _sent(summary: Summary) -> Any:
    up, down = summary.get("bytes_up"), summary.get("bytes_down")
    return None if up is None or down is None else up + down


COLUMNS = (
    Column("accuracy", "accuracy %", _at("accuracy"), _percent),
    Column("best_accuracy", "best %", _at("best_accuracy"), _percent),
    Column("top5_accuracy", "top-5 rounds %", _at("top5_accuracy"), _percent),
    Column("worst_client", "worst client %", _at("client_accuracy", "worst"), _percent),
    Column("client_std", "client std %", _at("client_accuracy", "std"), _percent),
    Column("personal_before", "personal before %", _at("personal_accuracy_before", "mean"), _percent),
    Column("personal_accuracy", "personal %", _at("personal_accuracy", "mean"), _percent),
    Column("bytes", "sent", _sent, _bytes),
    Column("seconds", "seconds", _at("seconds"), _seconds),
)


def aggregate(summaries: Iterable[Summary]) -> list[Row]:
    """One row per algorithm, in the order they first appear."""
    groups: dict[str, list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(str(summary["algorithm"]), []).append(summary)
    return [
        Row(
            algorithm,
            tuple(int(summary["seed"]) for summary in group),
            {c.key: found for c in COLUMNS if (found := estimate(c.find(s) for s in group)) is not None},
        )
        for algorithm, group in groups.items()
    ]


def estimate(values: Iterable[Any]) -> Estimate | None:
    """Mean and deviation of the numbers among `values`; None when there are none."""
    known = [float(v) for v in values if isinstance(v, (int, float)) and math.isfinite(v)]
    if not known:
        return None
    return Estimate(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))


def _shown(rows: Sequence[Row]) -> list[Column]:
    return [c for c in COLUMNS if any(c.key in row.cells for row in rows)]


def _cell(column: Column, row: Row) -> str:
    found = row.cells.get(column.key)
    if found is None:
        return "-"
    text = column.write(found.mean)
    if found.std is None or (column.key == "bytes" and not found.std):  # what is sent seldom depends on the seed
        return text
    return f"{text} ± {column.write(found.std)}"


def markdown(rows: Sequence[Row]) -> str:
    """A Markdown table with a line that says what the numbers are."""
    columns = _shown(rows)
    lines = [
        "| algorithm | runs | " + " | ".join(c.title for c in columns) + " |",
        "|---|---|" + "---|" * len(columns),
    ]
    for row in rows:
        name = row.algorithm.replace("|", "\\|")
        lines.append(f"| {name} | {len(row.seeds)} | " + " | ".join(_cell(c, row) for c in columns) + " |")
    lines += ["", "Mean ± sample standard deviation over seeds; top-5 rounds: mean of the five best rounds."]
    return "\n".join(lines) + "\n"


def rich_table(rows: Sequence[Row]) -> Table:
    """The same for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(caption="mean ± sample standard deviation over seeds", caption_justify="left")
    columns = _shown(rows)
    table.add_column("algorithm")
    table.add_column("runs", justify="right")
    for column in columns:
        table.add_column(column.title, justify="right")
    for row in rows:
        cells = [row.algorithm, str(len(row.seeds)), *(_cell(column, row) for column in columns)]
        table.add_row(*(Text(cell) for cell in cells))
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
    lines: list[tuple[str, Any, Callable[[float], str]]] = [
        ("accuracy %", summary.get("accuracy"), _percent),
        ("best %", summary.get("best_accuracy"), _percent),
        ("mean of the 5 best rounds %", summary.get("top5_accuracy"), _percent),
        *((f"clients: {k} %", _at("client_accuracy", k)(summary), _percent) for k in _SPREAD),
        ("personal before training: mean %", _at("personal_accuracy_before", "mean")(summary), _percent),
        *((f"personal: {k} %", _at("personal_accuracy", k)(summary), _percent) for k in _SPREAD),
        ("validation %", summary.get("validation_accuracy"), _percent),
        ("sent to clients", summary.get("bytes_down"), _bytes),
        ("sent by clients", summary.get("bytes_up"), _bytes),
        ("seconds", summary.get("seconds"), _seconds),
    ]
    shown = [(title, write(value)) for title, value, write in lines if estimate([value]) is not None]
    reached = summary.get("rounds_to") or {}
    shown += [(f"rounds to {100 * float(t):g} %", str(r)) for t, r in reached.items() if r is not None]
    return shown


_SPREAD = ("best", "worst", "mean", "std")
