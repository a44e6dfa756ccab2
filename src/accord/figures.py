"""Numbers over rounds as a figure of matplotlib: one line per label with a band over runs. Not shown, not saved."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from accord.colours import looks
from accord.errors import ConfigError, DataError, nearest
from accord.frames import scalars
from accord.problems import headlines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Record = Mapping[str, Any]
Runs = Mapping[str, Sequence[Sequence[Record]]]  # by label, each a list of runs, which are lists of rounds

FEW, ROWS = 12, 24  # labels that fit into the axes; labels in one column beside them


def series(runs: Sequence[Sequence[Record]], value: str = "accuracy") -> list[tuple[int, float, float]]:
    """(round, mean, sample standard deviation) for every round in which at least one run has the value.

    A value inside another goes by both names: `clients/worst`.

    >>> series([[{"round": 1, "accuracy": 0.5}, {"round": 2}], [{"round": 1, "accuracy": 0.5}]])
    [(1, 0.5, 0.0)]
    """
    values: dict[int, list[float]] = {}
    for records in runs:
        for record in records:
            number = _inside(record, value)
            if isinstance(number, (int, float)) and math.isfinite(number):
                values.setdefault(int(record["round"]), []).append(float(number))
    return [
        (round, statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else 0.0)
        for round, known in sorted(values.items())
    ]


def judged_value(runs: Runs, summaries: Iterable[Record]) -> str:
    """What pictures show unless told: what the runs are judged by, as far as their rounds have it."""
    personal = all(str(summary.get("judged_by", "")).startswith("personal") for summary in summaries)
    order = ["personal/mean", *headlines()] if personal else [*headlines(), "personal/mean"]
    return next((name for name in order if any(series(group, name) for group in runs.values())), order[0])


def figure_of(runs: Runs, value: str) -> Figure:
    """`value` over rounds: for each label its runs' mean, and a band of one deviation.

    Where every round has its simulated time, over that: a line for each run, as no two have the same times.
    A DataError, with the values there are, when no run has it; a ConfigError without matplotlib.
    """
    lines = {label: points for label, group in runs.items() if (points := series(group, value))}
    figure = empty_figure(*_size(len(lines)))
    if not lines:
        every = (record for group in runs.values() for records in group for record in records)
        known = dict.fromkeys(name for record in every for name, _ in scalars(record))
        raise DataError(f"no run has a value {value!r} to draw.{nearest(value, known)} There are: {', '.join(known)}")
    axes = figure.add_subplot()
    timed = all("clock" in record for group in runs.values() for records in group for record in records)
    for label, (colour, style) in looks(list(lines)).items():
        look = {"color": colour, "linestyle": style, "label": label.replace("$", r"\$")}
        if timed:
            _each(axes, runs[label], value, look)
        else:
            _mean(axes, lines[label], look)
    axes.set_xlabel("seconds of the simulated clock" if timed else "round")
    axes.set_ylabel("of personal models, the mean" if value == "personal/mean" else value)
    axes.grid(alpha=0.3)
    if not timed:
        whole_numbers(axes.xaxis)
    if columns := _columns(len(lines)):
        figure.legend(loc="outside right upper", fontsize="x-small", ncols=columns)
    else:
        axes.legend(loc="best", fontsize="small")
    return figure


def _mean(axes: Axes, points: Sequence[tuple[int, float, float]], look: dict[str, Any]) -> None:
    """Over rounds, with a band of one deviation."""
    rounds, mean, std = (list(column) for column in zip(*points, strict=True))
    axes.plot(rounds, mean, marker="o" if len(points) == 1 else None, **look)
    if any(std):
        low = [m - s for m, s in zip(mean, std, strict=True)]
        high = [m + s for m, s in zip(mean, std, strict=True)]
        axes.fill_between(rounds, low, high, color=look["color"], alpha=0.18, linewidth=0)


def _each(axes: Axes, runs: Sequence[Sequence[Record]], value: str, look: dict[str, Any]) -> None:
    """Over the simulated time, run by run; the first one is in the legend."""
    for records in runs:
        clock = {int(record["round"]): float(record["clock"]) for record in records}
        points = [(clock[round], number) for round, number, _ in series([records], value)]
        if points:
            seconds, numbers = (list(column) for column in zip(*points, strict=True))
            axes.plot(seconds, numbers, marker="o" if len(points) == 1 else None, **look)
            look = {**look, "label": "_"}  # matplotlib leaves it out of the legend


def empty_figure(width: float, height: float) -> Figure:
    """Without pyplot, so no global state and no display; a ConfigError without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("pictures need matplotlib: pip install 'accord-fl[plot]'") from error
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # attaches itself
    return figure


def whole_numbers(axis: Axis) -> None:
    """Ticks where something is: there is no round 2.5, and no client."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _columns(labels: int) -> int:
    """Of a legend beside the axes; a few labels fit inside."""
    return -(-labels // ROWS) if labels > FEW else 0


def _size(labels: int) -> tuple[float, float]:
    columns = _columns(labels)
    return 7 + 1.4 * columns, 5.5 if columns else 4.2


def _inside(record: Record, name: str) -> Any:
    value: Any = record
    for part in name.split("/"):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
