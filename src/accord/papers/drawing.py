"""What all figures share: panels, lines with bands, legends, files. PNG and SVG, one colour per method everywhere."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from accord.colours import Look
from accord.engine.files import write_atomic
from accord.errors import ConfigError
from accord.papers.experiment import Experiment
from accord.papers.records import Record
from accord.papers.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = list[tuple[float, float, float]]  # x, mean, deviation
Numbers = npt.NDArray[np.float64]

ACROSS = 3  # panels in a line
WIDEST = 44  # letters of a title that fit over a panel
LOW, HIGH = 70, 85  # an axis in percent that begins below the one and ends above the other is spread
TICKS = (90, 50, 80, 95, 98, 99, 100, 0, 20, 70, 60, 10, 30, 40, 97, 85)  # the first are wanted most


@dataclass(frozen=True)
class Drawn:
    """A figure that was written."""

    kind: str
    name: str  # without its ending


def blank(panels: int, lines: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with its axes, line by line, side by side; no pyplot, so no global state and no display."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("figures need matplotlib: pip install 'accord-fl[plot]'") from error
    figure = Figure(figsize=(4.4 * panels, 3.9 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(lines, panels, squeeze=False).flat)


def rows_of_panels(panels: int) -> tuple[Figure, list[Axes]]:
    """As `blank`, in lines of three panels at most, about equally long."""
    lines = -(-panels // ACROSS)
    figure, axes = blank(-(-panels // lines), lines)
    for empty in axes[panels:]:
        empty.remove()
    return figure, axes[:panels]


def save(figure: Figure, path: Path) -> None:
    """PNG and SVG, the same bytes for the same figure."""
    from matplotlib import rc_context

    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": path.name, "svg.fonttype": "none"}):
        for ending, facts in (("svg", {"Date": None}), ("png", {"Software": None})):
            picture = io.BytesIO()
            figure.savefig(picture, format=ending, dpi=110, metadata=facts)
            write_atomic(path.with_name(f"{path.name}.{ending}"), picture.getvalue())


def panel_titles(experiment: Experiment) -> dict[str, str]:
    """By the names of its places; where federations are called alike, each also by the column it fills."""
    titles = {place.name: place.setting.title for place in experiment.places}
    if len(set(titles.values())) < len(titles):
        for place in experiment.places:
            column = next(column for column in experiment.columns if column.place is place)
            titles[place.name] += f", {column.title}"
    return titles


def runs_of(table: Table) -> dict[str, dict[str, Sequence[Record]]]:
    """By place, in words, the records of each row that has some with evaluations."""
    result: dict[str, dict[str, Sequence[Record]]] = {}
    titles = panel_titles(table.experiment)
    for place in table.experiment.places:
        column = next(column for column in table.experiment.columns if column.place is place)
        cells = [(row.name, table.cells.get((row.name, column.key))) for row in table.experiment.rows]
        rows: dict[str, Sequence[Record]] = {}
        for name, cell in cells:
            seen = [one for one in (cell.records or cell.diverged) if one.fields["evaluations"]] if cell else []
            if seen:
                rows[name] = seen
        if rows:
            result[titles[place.name]] = rows
    return result


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


def remark(figure: Figure, rows: Sequence[str]) -> None:
    """Below the panels, who is not in them though there are runs."""
    if rows:
        said = f"Not drawn, as the records of one run or all do not have it. {'; '.join(rows)}."
        letters = int(15 * figure.get_size_inches()[0])
        figure.supxlabel(textwrap.fill(said, letters), fontsize="small", x=0.01, ha="left")


def dress(axis: Axes, title: str, across: str, up: str) -> None:
    """Titles and a faint grid."""
    axis.set_title(textwrap.fill(title, WIDEST), fontsize="medium")
    axis.set(xlabel=across, ylabel=up)
    axis.grid(alpha=0.3)


def spread(axis: Axes) -> bool:
    """Where lines go from low percents to the nineties, give the last points the room; whether it did.

    Those are where methods differ, and on an even axis they are one line.
    """
    low, high = (float(np.clip(edge, 0, 100)) for edge in axis.dataLim.intervaly)
    if low > LOW or high < HIGH:
        return False
    margin = (apart(high) - apart(low)) / 20
    ends = float(together(apart(low) - margin)), float(together(apart(high) + margin))
    axis.set_yscale("function", functions=(apart, together))
    axis.set_ylim(max(ends[0], 0), min(ends[1], 100))
    chosen: list[int] = []
    for tick in TICKS:
        near = any(abs(apart(tick) - apart(other)) < 1.6 * margin for other in chosen)
        if ends[0] <= tick <= ends[1] and not near:
            chosen.append(tick)
    axis.set_yticks(chosen, list(map(str, chosen)))
    return True


def apart(percent: ArrayLike) -> Numbers:
    """Even within a point of 100; below that, every factor in what is missing has the same length."""
    return np.asarray(-np.log1p(100 - np.minimum(percent, 100)))


def together(place: ArrayLike) -> Numbers:
    """The percents of places on such an axis."""
    return np.asarray(100 - np.expm1(-np.asarray(place)))


def title_of(table: Table, name: str) -> str:
    """A row's title, as matplotlib takes it."""
    return table.experiment.row(name).title.replace("$", r"\$")
