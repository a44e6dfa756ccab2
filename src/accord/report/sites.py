"""The table of sites at the end of a run, the worst first, and a sentence about the worst."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from accord.measures.column import number, percent
from accord.measures.sites import Sites
from accord.problems import Problem, headlines, leading
from accord.report.terminal import empty_table, framed

if TYPE_CHECKING:
    from rich.table import Table

LARGEST, MEAN = "largest class", "mean label"
TURN_ON = "--set evaluate.clients=true does it"
ALL, WORST, BEST = 15, 10, 3  # sites of a table that shows them all; of a longer federation, those from both ends
NAME = 24  # characters of a site's or a class's name
Summary = Mapping[str, Any]


class Judged(NamedTuple):
    """The leading number of a run, and how it is written."""

    key: str  # of the global model; `personal` is the clients' own models'
    problem: Problem

    @property
    def personal(self) -> str:
        """The column of the personal models."""
        return f"personal_{self.key}"

    @property
    def unit(self) -> str:
        """Behind a title, or a number."""
        return " %" if self.problem.share else ""

    def write(self, value: float | None) -> str:
        """As tables of runs have it."""
        return "-" if value is None else (percent if self.problem.share else number)(value)


def judged_by(summary: Summary) -> Judged:
    """What runs of its problem are judged by."""
    key, known = leading(summary), headlines()
    return Judged(key, known[key]) if key in known else Judged("accuracy", known["accuracy"])


def ordered_by(sites: Sites, summary: Summary) -> str:
    """The column sites are put in order by: the personal models' where the method is about them, if it was measured."""
    judged = judged_by(summary)
    both = [judged.key, judged.personal]
    if summary.get("judged_by") == judged.personal:
        both.reverse()
    return next((key for key in both if any(v is not None for v in sites.columns.get(key, ()))), "")


def in_order(sites: Sites, summary: Summary) -> list[int]:
    """Positions of the sites that have a value, the worst first; of equals the one with more test samples."""
    key = ordered_by(sites, summary)
    if not key:
        return []
    values = np.array(sites.columns[key], dtype=np.float64)  # None is NaN
    sign = 1 if judged_by(summary).problem.higher_is_better else -1
    order = np.lexsort((-np.array(sites.columns["test_samples"]), sign * values))
    return [int(position) for position in order[: len(values) - int(np.isnan(values).sum())]]


def worst_site(sites: Sites, summary: Summary) -> str:
    """One sentence; none where there are not two sites to compare."""
    order, key, judged = in_order(sites, summary), ordered_by(sites, summary), judged_by(summary)
    if len(order) < 2:
        return ""
    title = f"{'personal ' if key == judged.personal else ''}{judged.problem.title}"
    values = [sites.columns[key][position] for position in order]
    worst, mean = sites.row(order[0]), f"{judged.write(statistics.fmean(values))}{judged.unit}"
    if values[0] == values[-1]:
        return f"All {len(order)} sites have the same {title}, {mean}."
    tested = worst["test_samples"]
    return (
        f"Worst site: {_short(worst['site'])}, {title} {judged.write(values[0])}{judged.unit} on {tested} test "
        f"sample{'' if tested == 1 else 's'} (the mean over {len(order)} sites is {mean})."
    )


def sites_table(sites: Sites, summary: Summary, width: int) -> Table:
    """Who holds what, and how the models do there; of many sites the worst and the best."""
    from rich.text import Text

    some, rest = chosen(sites, summary)
    judged, held = judged_by(summary), _held(sites)
    models = {judged.key: f"global{judged.unit}", judged.personal: f"personal{judged.unit}"}
    keys = [key for key in models if key in sites.columns]
    titles = ["site", "samples", *([held] if held else []), *(models[key] for key in keys)]
    lines = []
    for position in some:
        row = sites.row(position)
        told = [_told(row, held)] if held else []
        lines.append([_short(row["site"]), str(row["samples"]), *told, *(judged.write(row[key]) for key in keys)])
    words = [[max(title.split(), key=len) for title in titles], *lines]
    table = empty_table(framed(max(map(len, column)) for column in zip(*words, strict=True)) > width)
    for title in titles:
        left = title in ("site", LARGEST)
        table.add_column(title, justify="left" if left else "right", overflow="ellipsis", no_wrap=title == "site")
    for place, line in enumerate(lines, start=1):
        table.add_row(*map(Text, line), end_section=bool(rest) and place == WORST)
    return table


def remarks(sites: Sites, summary: Summary, folder: Path) -> list[str]:
    """What is said below the table."""
    _, rest = chosen(sites, summary)
    said = [f"The worst and the best sites; {rest} more in {folder / 'sites.csv'}."] if rest else []
    key = judged_by(summary).key
    if key not in sites.columns and summary.get(key) is not None:
        said.append(f"The global model was not measured at the sites: {TURN_ON}.")
    return [*said, *([worst] if (worst := worst_site(sites, summary)) else [])]


def chosen(sites: Sites, summary: Summary) -> tuple[list[int], int]:
    """The sites that a table shows, and how many it leaves out: all of a few, else the worst and the best."""
    order = in_order(sites, summary)
    known, valued = len(order), set(order)
    order += [position for position in range(len(sites)) if position not in valued]  # without test data
    if len(order) <= ALL:
        return order, 0
    some = [*order[:WORST], *order[max(WORST, known - BEST) : max(WORST, known)]]
    return some, len(order) - len(some)


def _held(sites: Sites) -> str:
    """The title of what is told of a site's labels: the one class that is told of, if there is but one."""
    classes = set(sites.columns["class"]) - {""}
    if "label_mean" in sites.columns:
        return MEAN
    return "" if not classes else f"{_short(classes.pop())} %" if len(classes) == 1 else LARGEST


def _told(row: Mapping[str, Any], held: str) -> str:
    if held == MEAN:
        return "-" if row["label_mean"] is None else number(row["label_mean"])
    share = "-" if row["class_share"] is None else f"{100 * row['class_share']:.0f}"
    return f"{_short(row['class'])}: {share} %" if held == LARGEST and share != "-" else share


def _short(name: str) -> str:
    """As much of a name as there is room for, on one line."""
    name = " ".join(name.split())
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"
