"""Runs that go on, in a terminal: how far each got, and the leading number over rounds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from accord.errors import DataError
from accord.report.braille import bounds, grid
from accord.report.page.contents import contents

PAUSE = 1.0  # seconds between two looks
SHOWN = 12  # runs that have a line and a curve of their own


def follow(places: Sequence[Path | str], console: Console) -> None:
    """Until all runs have come to their end, or Ctrl-C."""
    with Live(console=console, screen=False, auto_refresh=False, transient=False) as live:
        while True:
            try:
                values = contents(places, live=True)
            except DataError:  # a line is being written; on a first look there is nothing to show
                time.sleep(PAUSE)
                continue
            live.update(view(values, console.width), refresh=True)
            if all(run["finished"] for run in values["runs"]):
                return
            time.sleep(PAUSE)


def view(values: Mapping[str, Any], width: int) -> RenderableType:
    """All that is shown at one moment."""
    runs = values["runs"]
    name, personal = values["judged"]["key"], "personal/mean"
    key = name if any(name in run["values"] for run in runs) else personal
    table = Table(box=None, padding=(0, 1), expand=False)
    for title in ("run", "round", name):
        table.add_column(title, justify="left" if title == "run" else "right", no_wrap=title != "run")
    for run in runs[:SHOWN]:
        known = [value for value in run["values"].get(key, ()) if value is not None]
        last = "-" if not known else f"{100 * known[-1]:.2f} %" if values["judged"]["percent"] else f"{known[-1]:.4g}"
        label = Text(f"{run['label']}, seed {run['seed']}", style=_colour(values, run))
        table.add_row(label, f"{run['done']} of {run['of']}", last)
    more = [Text(f"and {len(runs) - SHOWN} more")] if len(runs) > SHOWN else []
    return Group(table, *more, _curves(values, runs[:SHOWN], key, width))


def _curves(values: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], key: str, width: int) -> RenderableType:
    scale = 100 if values["judged"]["percent"] else 1
    curves = [
        (
            str(number),
            [
                (float(x), scale * float(y))
                for x, y in zip(run["rounds"], run["values"].get(key, ()), strict=False)
                if y is not None
            ],
        )
        for number, run in enumerate(runs)
    ]
    if not any(points for _, points in curves):
        return Text("no evaluation yet")
    left, right, low, high = bounds(curves)
    margin = max(len(f"{low:.4g}"), len(f"{high:.4g}")) + 1
    lines = []
    rows = grid(curves, max(10, min(width, 100) - margin - 1), 12)
    for number, row in enumerate(rows):
        edge = f"{high:.4g}" if number == 0 else f"{low:.4g}" if number == len(rows) - 1 else ""
        line = Text(edge.rjust(margin))
        for character, curve in row:
            line.append(character, style=_colour(values, runs[int(curve)]) if curve else "")
        lines.append(line)
    lines.append(Text(" " * margin + f"{left:g}" + f"{right:g} rounds".rjust(len(rows[0]) - len(f"{left:g}"))))
    return Group(*lines)


def _colour(values: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    colour = str(values["looks"][run["label"]]["colour"])
    return "" if colour == "#000000" else colour
