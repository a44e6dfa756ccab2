"""Numbers over rounds as a figure of matplotlib: one line per label with a band over runs. Not shown, not saved."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from accord.errors import ConfigError, DataError, nearest
from accord.frames import scalars
from accord.problems import headlines

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Record = Mapping[str, Any]
Runs = Mapping[str, Sequence[Sequence[Record]]]  # by label, each a list of runs, which are lists of rounds

# Okabe and Ito's colours, told apart by nearly all eyes; yellow is left out, as it vanishes on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
FEW, ROWS = 12, 24  # labels that fit into the axes; labels in one column beside them
STYLES = ("-", "--", ":", "-.")  # beyond seven labels the colours come again with another line


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

    A DataError, with the values there are, when no run has it; a ConfigError without matplotlib.
    """
    lines = {label: points for label, group in runs.items() if (points := series(group, value))}
    figure = empty_figure(*_size(len(lines)))
    if not lines:
        every = (record for group in runs.values() for records in group for record in records)
        known = dict.fromkeys(name for record in every for name, _ in scalars(record))
        raise DataError(f"no run has a value {value!r} to draw.{nearest(value, known)} There are: {', '.join(known)}")
    axes = figure.add_subplot()
    for position, (label, points) in enumerate(lines.items()):
        rounds, mean, std = (list(column) for column in zip(*points, strict=True))
        colour = PALETTE[position % len(PALETTE)]
        style = STYLES[position // len(PALETTE) % len(STYLES)]
        marker = "o" if len(points) == 1 else None
        axes.plot(rounds, mean, color=colour, linestyle=style, marker=marker, label=label.replace("$", r"\$"))
        if any(std):
            low = [m - s for m, s in zip(mean, std, strict=True)]
            high = [m + s for m, s in zip(mean, std, strict=True)]
            axes.fill_between(rounds, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.set_xlabel("round")
    axes.set_ylabel("of personal models, the mean" if value == "personal/mean" else value)
    axes.grid(alpha=0.3)
    whole_numbers(axes.xaxis)
    if columns := _columns(len(lines)):
        figure.legend(loc="outside right upper", fontsize="x-small", ncols=columns)
    else:
        axes.legend(loc="best", fontsize="small")
    return figure


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
