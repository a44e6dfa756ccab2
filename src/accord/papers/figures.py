"""Figures of an experiment, drawn from records alone: PNG and SVG, one colour per method everywhere.

`rounds`, `seconds` and `bytes`: accuracy over what it cost; `loss`: the training loss over rounds; `clients`: the
clients' accuracies in order; `sweep`: a number over what the columns differ in; `newcomers`: bars; `cosines`: a heat
map of clients and rounds. (`tsne` and `outputs` need a trained network: `networks.py`.)
"""

from __future__ import annotations

import io
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accord.colours import Look, looks
from accord.engine.files import write_atomic
from accord.errors import ConfigError
from accord.papers.numbers import found
from accord.papers.records import Record
from accord.papers.table import Table

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
MANY, SMOOTH = 30, 5  # a line of more points is a mean over so many neighbours


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


def runs_of(table: Table) -> dict[str, dict[str, Sequence[Record]]]:
    """By place, in words, the records of each row that has some."""
    result: dict[str, dict[str, Sequence[Record]]] = {}
    for place in table.experiment.places:
        column = next(column for column in table.experiment.columns if column.place is place)
        cells = [(row.name, table.cells.get((row.name, column.key))) for row in table.experiment.rows]
        rows = {name: shown for name, cell in cells if cell is not None and (shown := cell.records or cell.diverged)}
        if rows:
            result[f"{place.setting.title}, {column.title}" if place.change else place.setting.title] = rows
    return result


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
    drawn = {title: lines for title, lines in drawn.items() if lines}
    if not drawn:
        return None
    figure, axes = blank(len(drawn))
    shown = {name for lines in drawn.values() for name in lines}
    colours = looks([row.name for row in table.experiment.rows if row.name in shown])
    for axis, (title, lines) in zip(axes, drawn.items(), strict=True):
        for name, points in lines.items():
            band(axis, points, colours[name], _title(table, name), marker)
        many = max(len(points) for points in lines.values()) > MANY
        _dress(axis, title, across, f"{up}, mean of {SMOOTH} evaluations" if many else up)
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
    result: Points = []
    for round in common:
        xs, ys = zip(*(points[round] for points in runs), strict=True)
        result.append((statistics.fmean(xs), statistics.fmean(ys), statistics.stdev(ys) if len(ys) > 1 else 0.0))
    return smoothed(result) if len(result) > MANY else result


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
    """A number over what the columns differ in, one panel per setting."""
    groups: dict[str, dict[str, Points]] = {}
    for column in table.columns:
        for row in table.experiment.rows:
            cell = table.cells.get((row.name, column.key))
            if cell is not None and cell.ours is not None and column.x is not None:
                lines = groups.setdefault(column.group, {})
                lines.setdefault(row.name, []).append((column.x, cell.ours.mean, cell.ours.std or 0.0))
    sorted_groups = {group: {name: sorted(points) for name, points in lines.items()} for group, lines in groups.items()}
    return _lines(table, sorted_groups, table.experiment.axis, table.columns[0].number.metric, marker="o")


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
    for rows in runs_of(table).values():
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


def _title(table: Table, name: str) -> str:
    return table.experiment.row(name).title.replace("$", r"\$")


KINDS: Mapping[str, Callable[[Table, str], Figure | None]] = {
    **dict.fromkeys(AXES, _curves),
    "clients": _clients,
    "sweep": _sweep,
    "newcomers": _bars,
    "cosines": _cosines,
}
