"""Figures of an experiment, drawn from records alone: PNG and SVG, one colour per method everywhere.

`rounds`, `seconds` and `bytes`: accuracy over what it cost; `loss`: the training loss over rounds; `clients`: the
clients' accuracies in order; `sweep`: a number over what the columns differ in; `newcomers`: bars; `cosines`: a heat
map of clients and rounds. (`tsne` and `outputs` need a trained network: `features.py`.)
"""

from __future__ import annotations

import io
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accord.engine.files import write_atomic
from accord.errors import ConfigError
from accord.papers.experiment import Place
from accord.papers.numbers import found
from accord.papers.records import Record
from accord.papers.table import Table
from accord.report.colours import Look, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = list[tuple[float, float, float]]  # x, mean, deviation

AXES = {
    "rounds": ("round", "accuracy %", ("accuracy",), 100.0),
    "seconds": ("seconds of the device", "accuracy %", ("accuracy",), 100.0),
    "bytes": ("gigabytes sent", "accuracy %", ("accuracy",), 100.0),
    "loss": ("round", "training loss", ("loss",), 1.0),
}
WIDE = 200  # points of a line; more cannot be seen


@dataclass(frozen=True)
class Drawn:
    """A figure that was written."""

    kind: str
    name: str  # without its ending


def draw(table: Table, kind: str, folder: Path) -> Drawn | None:
    """One figure as PNG and SVG; None where no record has what it shows."""
    figure = KINDS[kind](table, kind) if kind in KINDS else None
    if figure is None:
        return None
    name = f"{table.experiment.id}-{kind}"
    save(figure, folder / name)
    return Drawn(kind, name)


def blank(panels: int) -> tuple[Figure, list[Axes]]:
    """A figure with its axes side by side; no pyplot, so no global state and no display."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("figures need matplotlib: pip install 'accord-fl[plot]'") from error
    figure = Figure(figsize=(4.4 * panels, 3.9), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def save(figure: Figure, path: Path) -> None:
    """PNG and SVG, the same bytes for the same figure."""
    from matplotlib import rc_context

    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": path.name, "svg.fonttype": "none"}):
        for ending, facts in (("svg", {"Date": None}), ("png", {"Software": None})):
            picture = io.BytesIO()
            figure.savefig(picture, format=ending, dpi=110, metadata=facts)
            write_atomic(path.with_name(f"{path.name}.{ending}"), picture.getvalue())


def runs_of(table: Table) -> dict[str, tuple[Place, dict[str, Sequence[Record]]]]:
    """By place, the records of each row that has some."""
    result: dict[str, tuple[Place, dict[str, Sequence[Record]]]] = {}
    for column in table.columns:
        rows = {
            row.name: shown
            for row in table.experiment.rows
            if (cell := table.cells.get((row.name, column.key))) is not None
            and (shown := cell.records or cell.diverged)
        }
        if rows:
            result.setdefault(column.place.name, (column.place, rows))
    return result


def _curves(table: Table, kind: str) -> Figure | None:
    """A value over rounds, seconds or bytes, one panel per place."""
    across, up, path, factor = AXES[kind]
    panels = {}
    for place, rows in runs_of(table).values():
        lines = {name: curve([record.fields for record in records], kind, path) for name, records in rows.items()}
        if any(lines.values()):
            panels[place.name] = (place, {name: points for name, points in lines.items() if points})
    if not panels:
        return None
    figure, axes = blank(len(panels))
    colours = looks(
        [row.name for row in table.experiment.rows if any(row.name in lines for _, lines in panels.values())]
    )
    for axis, (place, lines) in zip(axes, panels.values(), strict=True):
        for name, points in lines.items():
            band(
                axis, [(x, factor * mean, factor * std) for x, mean, std in points], colours[name], _title(table, name)
            )
        _dress(axis, place.setting.title, across, up)
    legend(figure, axes)
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
    step = max(1, len(common) // WIDE)
    result = []
    for round in [*common[::step], *(common[-1:] if common and (len(common) - 1) % step else [])]:
        xs, ys = zip(*(points[round] for points in runs), strict=True)
        result.append((statistics.fmean(xs), statistics.fmean(ys), statistics.stdev(ys) if len(ys) > 1 else 0.0))
    return result


def device_seconds(record: Mapping[str, Any], round: int) -> float | None:
    """What a run had of its device up to a round, every round alike; None where its share is not known."""
    share, done = record.get("gpu_seconds"), record["evaluations"][-1]["round"]
    return share * round / done if share else None


def _clients(table: Table, kind: str) -> Figure | None:
    """Clients' accuracies in order, at the last evaluation: worst, deciles, best."""
    panels = {}
    for place, rows in runs_of(table).values():
        lines = {name: line for name, records in rows.items() if (line := in_order(records))}
        if lines:
            panels[place.name] = (place, lines)
    if not panels:
        return None
    figure, axes = blank(len(panels))
    colours = looks(
        [row.name for row in table.experiment.rows if any(row.name in lines for _, lines in panels.values())]
    )
    for axis, (place, lines) in zip(axes, panels.values(), strict=True):
        for name, line in lines.items():
            band(axis, [(10.0 * i, 100 * y, 0.0) for i, y in enumerate(line)], colours[name], _title(table, name))
        _dress(axis, place.setting.title, "clients, worst to best, %", "accuracy on own test data %")
    legend(figure, axes)
    return figure


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
    """A number over what the columns differ in, one panel per setting."""
    groups: dict[str, dict[str, Points]] = {}
    for column in table.columns:
        for row in table.experiment.rows:
            cell = table.cells.get((row.name, column.key))
            if cell is not None and cell.ours is not None and column.x is not None:
                lines = groups.setdefault(column.group, {})
                lines.setdefault(row.name, []).append((column.x, cell.ours.mean, cell.ours.std or 0.0))
    if not groups:
        return None
    figure, axes = blank(len(groups))
    colours = looks([row.name for row in table.experiment.rows])
    for axis, (group, lines) in zip(axes, groups.items(), strict=True):
        for name, points in lines.items():
            band(axis, sorted(points), colours[name], _title(table, name), marker="o")
        _dress(axis, group, table.experiment.axis, table.columns[0].number.metric)
    legend(figure, axes)
    return figure


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
    axis.set_xticks(range(len(shown)), [_title(table, name) for name in shown], fontsize="small")
    _dress(axis, f"{column.group} (solid: ours; hatched: the paper)", "", column.title)
    return figure


def _cosines(table: Table, kind: str) -> Figure | None:
    """A panel per method: clients down, rounds across, the cosine of a client's update with the server's step."""
    panels: dict[str, tuple[list[int], list[list[float]]]] = {}
    for _, rows in runs_of(table).values():
        for name, records in rows.items():
            seen = [one for one in records[0].fields["evaluations"] if found(one, ("drift", "mean")) is not None]
            each: list[list[float]] = [one["drift"].get("clients", []) for one in seen]
            if each and all(each):
                panels.setdefault(name, ([one["round"] for one in seen], each))
    if not panels:
        return None
    figure, axes = blank(len(panels))
    images = []
    for axis, (name, (rounds, lines)) in zip(axes, panels.items(), strict=True):
        values = list(zip(*lines, strict=True))
        extent = (rounds[0], rounds[-1], len(values) - 0.5, -0.5)
        images += [axis.imshow(values, aspect="auto", cmap="cividis", vmin=0, vmax=1, extent=extent)]
        axis.set(title=_title(table, name), xlabel="round", ylabel="client")
    figure.colorbar(images[0], ax=axes, label="cosine")
    return figure


def band(axis: Axes, points: Points, look: Look, label: str, marker: str | None = None) -> None:
    """A line with a band of one deviation."""
    xs, means, stds = (list(values) for values in zip(*points, strict=True))
    only = marker or ("o" if len(points) == 1 else None)
    axis.plot(xs, means, color=look.colour, linestyle=look.line, marker=only, markersize=4, linewidth=1.4, label=label)
    if any(stds):
        low, high = ([m + sign * s for m, s in zip(means, stds, strict=True)] for sign in (-1, 1))
        axis.fill_between(xs, low, high, color=look.colour, alpha=0.15, linewidth=0)


def legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One for all panels, beside them."""
    known: dict[str, Any] = {}
    for axis in axes:
        for line, label in zip(*axis.get_legend_handles_labels(), strict=True):
            known.setdefault(label, line)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width + 0.5 + 0.075 * max(map(len, known)), max(height, 0.6 + 0.2 * len(known)))
    figure.legend(list(known.values()), list(known), loc="outside right upper", fontsize="small")


def _dress(axis: Axes, title: str, across: str, up: str) -> None:
    axis.set_title(title, fontsize="medium")
    axis.set(xlabel=across, ylabel=up)
    axis.grid(alpha=0.3)


def _looks(table: Table, panels: Iterable[tuple[Place, Mapping[str, Any]]]) -> dict[str, Look]:
    """Of the rows that are in any panel."""
    shown = {name for _, lines in panels for name in lines}
    return looks([row.name for row in table.experiment.rows if row.name in shown])


def _title(table: Table, name: str) -> str:
    return table.experiment.row(name).title.replace("$", r"\$")


KINDS: Mapping[str, Callable[[Table, str], Figure | None]] = {
    **dict.fromkeys(AXES, _curves),
    "clients": _clients,
    "sweep": _sweep,
    "newcomers": _bars,
    "cosines": _cosines,
}
