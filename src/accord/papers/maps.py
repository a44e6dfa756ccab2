"""Figures of what runs leave besides curves: heat maps of updates, t-SNE of features, answers of clients' models.

All from records: a run with `evaluate.drift`, `evaluate.feature_map` or `evaluate.local_view` keeps what they show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from accord.colours import COLOURS
from accord.measures.tsne import unpacked
from accord.papers.drawing import blank, dress, legend, runs_of, title_of
from accord.papers.numbers import found
from accord.papers.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = ("o", "^", "s", "x")  # seven colours are too few for ten classes
Floats = npt.NDArray[np.float64]


def ends(table: Table, name: str) -> dict[str, Mapping[str, Any]]:
    """What the first seed of each row left at its end, in the first place that has any."""
    for rows in runs_of(table).values():
        kept = {row: (records[0].fields.get("summary") or {}).get(name) for row, records in rows.items()}
        known = {row: value for row, value in kept.items() if value}
        if known:
            return known
    return {}


def _cosines(table: Table, kind: str) -> Figure | None:
    """A panel per method: clients across, rounds down, the cosine of a client's update with the server's step."""
    panels: dict[str, tuple[list[int], list[list[float]]]] = {}
    for rows in runs_of(table).values():
        for name, records in rows.items():
            seen = [one for one in records[0].fields["evaluations"] if found(one, ("drift", "mean")) is not None]
            each: list[list[float]] = [one["drift"].get("clients", []) for one in seen]
            if each and all(each) and len(set(map(len, each))) == 1:
                panels.setdefault(name, ([one["round"] for one in seen], each))
    if not panels:
        return None
    figure, axes = blank(len(panels))
    lowest = min(0.0, *(value for _, lines in panels.values() for line in lines for value in line))
    for axis, (name, (rounds, lines)) in zip(axes, panels.items(), strict=True):
        step = (rounds[1] - rounds[0]) / 2 if len(rounds) > 1 else 0.5
        extent = (-0.5, len(lines[0]) - 0.5, rounds[-1] + step, rounds[0] - step)
        image = axis.imshow(
            lines, aspect="auto", cmap="cividis", vmin=lowest, vmax=1, extent=extent, interpolation="nearest"
        )
        mean = float(np.mean(lines))
        axis.set_title(f"{title_of(table, name)}, mean {mean:.2f}", fontsize="medium")
        axis.set(xlabel="client", ylabel="round")
        axis.locator_params(integer=True)
    figure.colorbar(image, ax=axes, label="cosine")
    return figure


def _features(table: Table, kind: str) -> Figure | None:
    """A panel per method, a colour and mark per class."""
    known = ends(table, "feature_map")
    if not known:
        return None
    figure, axes = blank(len(known))
    for axis, (name, kept) in zip(axes, known.items(), strict=True):
        scatter(axis, unpacked(kept["points"], 2).astype(float), unpacked(kept["labels"])[:, 0])
        axis.set_title(title_of(table, name), fontsize="medium")
    _classes(figure, axes)
    return figure


def _local_features(table: Table, kind: str) -> Figure | None:
    """A line of panels per method in one map: the classes the client has by the global model and by its own, and the
    classes it has never seen by its own."""
    known = {name: kept["map"] for name, kept in ends(table, "local_view").items()}
    if not known:
        return None
    figure, axes = blank(3, len(known))
    for line, (name, kept) in enumerate(known.items()):
        points, labels = unpacked(kept["points"], 2).astype(float), unpacked(kept["labels"])[:, 0]
        own = np.isin(labels, kept["held"])
        whole, local = points[: len(labels)], points[len(labels) :]
        views = [("global model, X1", whole, own), ("client's model, X1", local, own), ("client's, X2", local, ~own)]
        for axis, (title, some, rows) in zip(axes[3 * line : 3 * line + 3], views, strict=True):
            axis.scatter(points[:, 0], points[:, 1], s=4, color="#dddddd", linewidth=0, rasterized=True)
            scatter(axis, some[rows], labels[rows])
            axis.set_title(f"{title_of(table, name)}: {title}", fontsize="medium")
    _classes(figure, axes)
    return figure


def scatter(axis: Axes, points: Floats, labels: npt.NDArray[np.uint8]) -> None:
    """Points of each class in its colour and mark."""
    colours = list(COLOURS.values())
    for label in np.unique(labels).tolist():
        some = points[labels == label]
        mark = MARKS[label // len(colours) % len(MARKS)]
        look = {"color": colours[label % len(colours)], "marker": mark, "linewidth": 0.6 if mark == "x" else 0}
        axis.scatter(some[:, 0], some[:, 1], s=7, label=str(label), rasterized=True, **look)
    axis.set(xticks=[], yticks=[], xlim=(-5, 260), ylim=(-5, 260), aspect="equal")


def _classes(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend of all classes that are shown anywhere."""
    known: dict[str, Any] = {}
    for axis in axes:
        known |= {name: handle for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    names = sorted(known, key=int)
    handles = [known[name] for name in names]
    width, height = figure.get_size_inches()
    figure.set_size_inches(width + 0.8, height)
    figure.legend(handles, names, loc="outside right upper", fontsize="small", markerscale=2.5, title="class")


def _outputs(table: Table, kind: str) -> Figure | None:
    """A panel per method: for each class, the share of each client's answers."""
    known = {name: kept["answers"] for name, kept in ends(table, "local_view").items()}
    if not known:
        return None
    figure, axes = blank(len(known))
    for axis, (name, answers) in zip(axes, known.items(), strict=True):
        width = 0.8 / len(answers)
        for place, (client, share) in enumerate(answers.items()):
            colour = list(COLOURS.values())[place % len(COLOURS)]
            middle = np.arange(len(share)) + (place + 0.5) * width - 0.4
            axis.bar(middle, 100 * np.array(share), width, color=colour, label=f"model of client {client}")
        axis.axhline(100 / len(share), color="#888888", linestyle=":", label="the samples")
        axis.set_xticks(range(len(share)))
        dress(axis, title_of(table, name), "class", "answers %")
        axis.set_ylim(0, 105 * max(max(share) for answers in known.values() for share in answers.values()))
    legend(figure, axes)
    return figure


MAPS: Mapping[str, Callable[[Table, str], Figure | None]] = {
    "cosines": _cosines,
    "tsne": _features,
    "local-tsne": _local_features,
    "outputs": _outputs,
}
