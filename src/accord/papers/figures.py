"""Figures of an experiment, drawn from records alone: PNG and SVG, one colour per method everywhere.

`rounds`, `seconds` and `bytes`: accuracy over what it cost; `loss` and `training`: the training loss, and the accuracy
on the clients' training data, over rounds; `clients`: the clients' accuracies in order; `sweep`: a number over what
columns or rows differ in; `newcomers`: bars. Those of `maps.py`: `cosines`, `tsne`, `local-tsne`, `outputs`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accord.colours import looks
from accord.papers.drawing import (
    Drawn,
    Points,
    band,
    blank,
    dress,
    legend,
    remark,
    rows_of_panels,
    runs_of,
    save,
    spread,
    title_of,
)
from accord.papers.experiment import Column
from accord.papers.maps import MAPS
from accord.papers.numbers import found
from accord.papers.records import Record
from accord.papers.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES = {
    "rounds": ("round", "accuracy %", ("accuracy",), 100.0),
    "seconds": ("seconds of the device", "accuracy %", ("accuracy",), 100.0),
    "bytes": ("gigabytes sent", "accuracy %", ("accuracy",), 100.0),
    "loss": ("round", "training loss", ("loss",), 1.0),
    "training": ("round", "accuracy on training data %", ("training_accuracy",), 100.0),
}
MANY, SMOOTH = 30, 5  # where a line has more points, all beside it are means over so many neighbours


def draw(table: Table, kind: str, folder: Path) -> Drawn | None:
    """One figure as PNG and SVG; None where no record has what it shows."""
    figure = KINDS[kind](table, kind) if kind in KINDS else None
    if figure is None:
        return None
    name = f"{table.experiment.id}-{kind}"
    save(figure, folder / name)
    return Drawn(kind, name)


def _curves(table: Table, kind: str) -> Figure | None:
    """A value over rounds, seconds or bytes, one panel per place."""
    across, up, path, factor = AXES[kind]
    panels: dict[str, dict[str, Points]] = {}
    for title, rows in runs_of(table).items():
        for name, records in rows.items():
            points = curve([record.fields for record in records], kind, path)
            panels.setdefault(title, {})[name] = [(x, factor * mean, factor * std) for x, mean, std in points]
    return _lines(table, panels, across, up)


def _lines(
    table: Table, panels: Mapping[str, Mapping[str, Points]], across: str, up: str, marker: str | None = None
) -> Figure | None:
    """Panels side by side, a line per row; None where there are no points at all."""
    drawn = {title: {name: points for name, points in lines.items() if points} for title, lines in panels.items()}
    left_out = {
        title: [title_of(table, name) for name in lines if name not in drawn[title]] for title, lines in panels.items()
    }
    drawn = {title: lines for title, lines in drawn.items() if lines}
    if not drawn:
        return None
    figure, axes = rows_of_panels(len(drawn))
    shown = {name for lines in drawn.values() for name in lines}
    colours = looks([row.name for row in table.experiment.rows if row.name in shown])
    for axis, (title, lines) in zip(axes, drawn.items(), strict=True):
        many = max(len(points) for points in lines.values()) > MANY
        for name, points in lines.items():
            band(axis, smoothed(points) if many else points, colours[name], title_of(table, name), marker)
        remarks = [f"mean of {SMOOTH} evaluations"] if many else []
        remarks += ["spread at the top"] if "%" in up and spread(axis) else []
        dress(axis, title, across, "\n".join([up, ", ".join(remarks)]).strip())
    legend(figure, axes)
    remark(figure, [f"{title}: {', '.join(names)}" for title, names in left_out.items() if names])
    return figure


def curve(records: Sequence[Mapping[str, Any]], kind: str, path: Sequence[str]) -> Points:
    """Mean and deviation over runs at every evaluation that all of them have."""
    runs: list[dict[int, tuple[float, float]]] = []
    for record in records:
        points = {}
        for one in record["evaluations"]:
            x = {"seconds": device_seconds(record, one["round"]), "bytes": one.get("bytes")}.get(kind, one["round"])
            y = found(one, path)
            if x is not None and y is not None:
                points[one["round"]] = (x / 1e9 if kind == "bytes" else float(x), y)
        runs.append(points)
    common = sorted(set(runs[0]).intersection(*runs[1:])) if runs else []
    result: Points = []
    for round in common:
        xs, ys = zip(*(points[round] for points in runs), strict=True)
        result.append((statistics.fmean(xs), statistics.fmean(ys), statistics.stdev(ys) if len(ys) > 1 else 0.0))
    return result


def smoothed(points: Points) -> Points:
    """Means over a few neighbours: single rounds swing with who took part in them."""
    half = SMOOTH // 2
    near = [points[max(0, place - half) : place + half + 1] for place in range(len(points))]
    return [
        (x, statistics.fmean(mean for _, mean, _ in some), statistics.fmean(std for _, _, std in some))
        for (x, _, _), some in zip(points, near, strict=True)
    ]


def device_seconds(record: Mapping[str, Any], round: int) -> float | None:
    """What a run had of its device up to a round, every round alike; None where its share is not known."""
    share, done = record.get("gpu_seconds"), record["evaluations"][-1]["round"]
    return share * round / done if share else None


def _clients(table: Table, kind: str) -> Figure | None:
    """Clients' accuracies in order, at the last evaluation: worst, deciles, best."""
    panels = {
        title: {
            name: [(10.0 * i, 100 * y, 0.0) for i, y in enumerate(in_order(records))] for name, records in rows.items()
        }
        for title, rows in runs_of(table).items()
    }
    return _lines(table, panels, "clients, worst to best, %", "accuracy on own test data %")


def in_order(records: Sequence[Record]) -> list[float]:
    """[11] the mean over runs of worst, nine deciles and best; nothing if they were not kept."""
    lines = []
    for record in records:
        last = record.fields["evaluations"][-1]
        spread = last.get("clients") or last.get("personal") or {}
        if "deciles" in spread:
            lines.append([spread["worst"], *spread["deciles"], spread["best"]])
    return [statistics.fmean(column) for column in zip(*lines, strict=True)]


def _sweep(table: Table, kind: str) -> Figure | None:
    """A number over what the columns differ in, one panel per setting; or over what the rows differ in."""
    if any(row.x is not None for row in table.experiment.rows):
        return _over_rows(table)
    groups: dict[str, dict[str, Points]] = {}
    for column in table.columns:
        for row in table.experiment.rows:
            cell = table.cells.get((row.name, column.key))
            if cell is not None and cell.ours is not None and column.x is not None:
                lines = groups.setdefault(column.group, {})
                lines.setdefault(row.name, []).append((column.x, cell.ours.mean, cell.ours.std or 0.0))
    sorted_groups = {group: {name: sorted(points) for name, points in lines.items()} for group, lines in groups.items()}
    return _lines(table, sorted_groups, table.experiment.axis, _named(table.columns[0]), marker="o")


def _over_rows(table: Table) -> Figure | None:
    """A line through the rows that lie on the axis, and the baseline as a level, one panel per column."""
    one = table.experiment
    lines: dict[str, Points] = {}
    for column in table.columns:
        cells = [(row.x, table.cells.get((row.name, column.key))) for row in one.rows if row.x is not None]
        points = [(x, cell.ours.mean, cell.ours.std or 0.0) for x, cell in cells if cell is not None and cell.ours]
        if points:
            lines[column.key] = sorted(points)
    if not lines:
        return None
    figure, axes = blank(len(lines))
    own, level = looks([one.own, one.baseline]).values()
    for axis, (key, points) in zip(axes, lines.items(), strict=True):
        column = next(column for column in table.columns if column.key == key)
        band(axis, points, own, f"with {one.axis}", marker="o")
        base = table.cells.get((one.baseline, key))
        if base is not None and base.ours is not None:
            axis.axhline(base.ours.mean, color=level.colour, linestyle="--", label=title_of(table, one.baseline))
        dress(axis, f"{column.group}, {column.title}", one.axis, _named(column))
    legend(figure, axes)
    return figure


def _named(column: Column) -> str:
    """What an axis says of a column's numbers."""
    return f"{column.number.metric} %" if column.number.unit == "percent" else column.number.metric


def _bars(table: Table, kind: str) -> Figure | None:
    """The first column as bars, the paper's beside ours."""
    column = table.columns[0]
    shown = {row.name: cell for row in table.experiment.rows if (cell := table.cells[row.name, column.key]).ours}
    if not shown:
        return None
    figure, (axis,) = blank(1)
    colours = looks(list(shown))
    for place, (name, cell) in enumerate(shown.items()):
        assert cell.ours is not None
        axis.bar(place - 0.2, cell.ours.mean, 0.38, color=colours[name].colour, yerr=cell.ours.std, label="ours")
        if cell.printed.value is not None:
            axis.bar(place + 0.2, cell.printed.value, 0.38, color="white", edgecolor=colours[name].colour, hatch="//")
    axis.set_xticks(range(len(shown)), [title_of(table, name) for name in shown], fontsize="small")
    dress(axis, f"{column.group} (solid: ours; hatched: the paper)", "", column.title)
    return figure


KINDS: Mapping[str, Callable[[Table, str], Figure | None]] = {
    **dict.fromkeys(AXES, _curves),
    "clients": _clients,
    "sweep": _sweep,
    "newcomers": _bars,
    **MAPS,
}
