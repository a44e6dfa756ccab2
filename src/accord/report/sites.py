"""The table of sites at the end of a run, the worst first, and a sentence about the worst."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from accord.measures.column import percent
from accord.measures.sites import Sites
from accord.report.terminal import empty_table, framed

if TYPE_CHECKING:
    from rich.table import Table

MODELS = {"accuracy": "global %", "personal_accuracy": "personal %"}
LARGEST = "largest class"
TURN_ON = "--set evaluate.clients=true does it"
ALL, WORST, BEST = 15, 10, 3  # sites of a table that shows them all; of a longer federation, those from both ends
NAME = 24  # characters of a site's or a class's name
Summary = Mapping[str, Any]


class Judged(NamedTuple):
    """The number sites are put in order by."""

    key: str
    title: str
    higher: bool = True


def judged_by(sites: Sites, summary: Summary) -> Judged | None:
    """What the method is judged by, as far as it was measured at the clients."""
    both = [Judged("accuracy", "accuracy"), Judged("personal_accuracy", "personal accuracy")]
    if summary.get("judged_by") == "personal_accuracy":
        both.reverse()
    return next((j for j in both if any(v is not None for v in sites.columns.get(j.key, ()))), None)


def in_order(sites: Sites, judged: Judged) -> list[int]:
    """Positions of the sites that have a value, the worst first; of equals the one with more test samples."""
    values, sizes = sites.columns[judged.key], sites.columns["test_samples"]
    known = [position for position, value in enumerate(values) if value is not None]
    sign = 1 if judged.higher else -1
    return sorted(known, key=lambda position: (sign * values[position], -sizes[position]))


def worst_site(sites: Sites, summary: Summary) -> str:
    """One sentence; none where there are not two sites to compare, or all are alike."""
    judged = judged_by(sites, summary)
    order = in_order(sites, judged) if judged is not None else []
    if judged is None or len(order) < 2:
        return ""
    values = sites.columns[judged.key]
    worst, mean = sites.row(order[0]), statistics.fmean(values[position] for position in order)
    if values[order[0]] == values[order[-1]]:
        return f"All {len(order)} sites have the same {judged.title}, {percent(mean)} %."
    tested = worst["test_samples"]
    return (
        f"Worst site: {_short(worst['site'])}, {judged.title} {percent(worst[judged.key])} % on {tested} test "
        f"sample{'' if tested == 1 else 's'} (the mean over {len(order)} sites is {percent(mean)} %)."
    )


def sites_table(sites: Sites, summary: Summary, width: int) -> Table:
    """Who holds what, and how the models do there; of many sites the worst and the best."""
    from rich.text import Text

    some, rest = chosen(sites, summary)
    classes = set(sites.columns["class"]) - {""}
    told = _short(classes.pop()) if len(classes) == 1 else ""
    models = [title for key, title in MODELS.items() if key in sites.columns]
    titles = ["site", "samples", f"{told} %" if told else LARGEST, *models]
    lines = [_line(sites.row(position), told) for position in some]
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
    if "accuracy" not in sites.columns and summary.get("accuracy") is not None:
        said.append(f"The global model was not measured at the sites: {TURN_ON}.")
    return [*said, *([worst] if (worst := worst_site(sites, summary)) else [])]


def chosen(sites: Sites, summary: Summary) -> tuple[list[int], int]:
    """The sites that a table shows, and how many it leaves out: all of a few, else the worst and the best."""
    judged = judged_by(sites, summary)
    order = in_order(sites, judged) if judged is not None else []
    known, valued = len(order), set(order)
    order += [position for position in range(len(sites)) if position not in valued]  # without test data
    if len(order) <= ALL:
        return order, 0
    some = [*order[:WORST], *order[max(WORST, known - BEST) : max(WORST, known)]]
    return some, len(order) - len(some)


def _line(row: Mapping[str, Any], told: str) -> list[str]:
    """A site's cells; `told` is the one class that is told of, if there is but one."""
    share = "-" if row["class_share"] is None else f"{100 * row['class_share']:.0f}"
    values = [row[key] for key in MODELS if key in row]
    return [
        _short(row["site"]),
        str(row["samples"]),
        share if told or share == "-" else f"{_short(row['class'])}: {share} %",
        *("-" if value is None else percent(value) for value in values),
    ]


def _short(name: str) -> str:
    """As much of a name as there is room for, on one line."""
    name = " ".join(name.split())
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"
