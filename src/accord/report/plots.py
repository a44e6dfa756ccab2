"""Accuracy over rounds, one line per label with a band over seeds. Drawn without a display."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accord.engine.files import write_atomic
from accord.errors import ConfigError
from accord.report.colours import looks

Record = Mapping[str, Any]

FEW, ROWS = 12, 24  # labels that fit into the axes; labels in one column beside them


def series(runs: Sequence[Sequence[Record]], value: str = "accuracy") -> list[tuple[int, float, float]]:
    """(round, mean, sample standard deviation) for every round in which at least one run has the value.

    >>> series([[{"round": 1, "accuracy": 0.5}, {"round": 2}], [{"round": 1, "accuracy": 0.5}]])
    [(1, 0.5, 0.0)]
    """
    values: dict[int, list[float]] = {}
    for records in runs:
        for record in records:
            number = record.get(value)
            if isinstance(number, (int, float)) and math.isfinite(number):
                values.setdefault(int(record["round"]), []).append(float(number))
    return [
        (round, statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else 0.0)
        for round, known in sorted(values.items())
    ]


def curves(path: Path, runs: Mapping[str, Sequence[Sequence[Record]]], value: str = "accuracy") -> bool:
    """Draw `value` over rounds to a PNG file: for each label its runs' mean, and a band of one deviation.

    Returns False, and writes nothing, when no run has the value.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise ConfigError("pictures need matplotlib: pip install 'accord-fl[plot]'") from error
    lines = {label: series(group, value) for label, group in runs.items()}
    if not any(lines.values()):
        return False
    shown = sum(1 for points in lines.values() if points)
    columns = -(-shown // ROWS) if shown > FEW else 0  # of a legend beside the axes; a few fit inside
    figure = Figure(figsize=(7 + 1.4 * columns, 5.5 if columns else 4.2), layout="constrained")
    FigureCanvasAgg(figure)  # attaches itself; no pyplot, so no global state
    axes = figure.add_subplot()
    drawn = looks([label for label, points in lines.items() if points])
    for label, (colour, style) in drawn.items():
        points = lines[label]
        rounds, mean, std = (list(column) for column in zip(*points, strict=True))
        marker = "o" if len(points) == 1 else None
        axes.plot(rounds, mean, color=colour, linestyle=style, marker=marker, label=label.replace("$", r"\$"))
        if any(std):
            low = [m - s for m, s in zip(mean, std, strict=True)]
            high = [m + s for m, s in zip(mean, std, strict=True)]
            axes.fill_between(rounds, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.set_xlabel("round")
    axes.set_ylabel(value)
    axes.grid(alpha=0.3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if columns:
        figure.legend(loc="outside right upper", fontsize="x-small", ncols=columns)
    else:
        axes.legend(loc="best", fontsize="small")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    write_atomic(path, picture.getvalue())
    return True
