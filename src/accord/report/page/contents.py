"""What a page shows, as plain values: of runs that are over, and of runs that go on.

A page has to stay small however much there is to show. Curves have fewer points when there are more runs, and what
belongs to single clients in single rounds is shown of the first seed of each label.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accord._version import __version__
from accord.colours import looks
from accord.engine.ending import FILE as SUMMARY
from accord.engine.sites import read_sites
from accord.errors import DataError
from accord.measures.sites import Sites
from accord.report.collection import labels, runs_below
from accord.report.differences import HEADINGS, Differences, differences
from accord.report.page.details import Division, calibration, confusion, division_of, drift, facts, failures, history_of
from accord.report.page.history import History, read_history
from accord.report.runs import read_summary
from accord.report.sites import judged_by, worst_site
from accord.report.tables import aggregate, cells, remarks, shown

Values = dict[str, Any]
POINTS, ALL_POINTS = 400, 24_000  # of a curve, of all of them
ROUNDS = 80  # whose clients are read one by one
CELLS = 60_000  # numbers about single clients in single rounds
DIGITS = 5  # of a number in a picture


@dataclass(frozen=True)
class Run:
    """One run as far as it got."""

    folder: Path
    label: str
    summary: Mapping[str, Any]  # empty while it goes on
    history: History
    sites: Sites | None
    seed: int

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return bool(self.summary)


def contents(places: Iterable[Path | str], *, live: bool = False) -> Values:
    """Everything a page shows of the runs in or below `places`; while `live`, of those too that go on."""
    runs = read_runs(places, live=live)
    over = {(run.label, run.seed): run.summary for run in runs if run.finished}
    apart = differences(over) if len({label for label, _ in over}) > 1 else None
    rows = aggregate({**summary, "algorithm": label} for (label, _), summary in over.items())
    columns = shown(rows)
    names = list(dict.fromkeys(run.label for run in runs))
    detailed = _detailed(runs)
    divisions: dict[str, Division] = {}
    told = [_run(run, run in detailed, len(detailed), divisions) for run in runs]
    return {
        "accord": __version__,
        "made": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "live": live,
        "title": _title(runs, names),
        "answer": _answer(runs, apart),
        "judged": _judged(runs),
        "looks": {name: {"colour": look.colour, "line": look.line} for name, look in looks(names).items()},
        "table": {
            "titles": ["method", "runs", *(column.title for column in columns)],
            "rows": [
                [(row.algorithm, False), (str(len(row.seeds)), False), *written]
                for row, written in zip(rows, cells(rows, columns), strict=True)
            ],
            "remark": f"mean ± sample standard deviation over seeds{remarks(columns)}",
        },
        "apart": None if apart is None else _apart(apart),
        "runs": told,
        "divisions": {key: division.as_values() for key, division in divisions.items()},
    }


def read_runs(places: Iterable[Path | str], *, live: bool) -> list[Run]:
    """The runs, those of one label side by side; DataError where two are the same."""
    folders = list(dict.fromkeys(f for place in places for f in runs_below(Path(place), finished=not live)))
    summaries = {f: read_summary(f) if (f / SUMMARY).is_file() else {} for f in folders}
    named = labels(summaries)
    points = max(40, min(POINTS, ALL_POINTS // len(folders)))
    runs: list[Run] = []
    seen: dict[tuple[str, int], Path] = {}
    order = list(dict.fromkeys(named.values()))
    for folder in sorted(folders, key=lambda f: (order.index(named[f]), facts(f).seed)):
        first = not runs or runs[-1].label != named[folder]
        history = read_history(folder, points, ROUNDS if first else 0)
        run = Run(folder, named[folder], summaries[folder], history, read_sites(folder), facts(folder).seed)
        runs.append(run)
        other = seen.setdefault((run.label, run.seed), run.folder)
        if other != run.folder:
            raise DataError(
                f"{other} and {run.folder} have the same settings and seed ({run.label}, {run.seed}): name only one"
            )
    return runs


def _detailed(runs: Sequence[Run]) -> list[Run]:
    """The first seed of each label."""
    first: dict[str, Run] = {}
    for run in runs:
        first.setdefault(run.label, run)
    return list(first.values())


def _run(run: Run, detailed: bool, count: int, divisions: dict[str, Division]) -> Values:
    known = facts(run.folder)
    division = division_of(run.folder, run.sites)
    if division is not None:
        divisions.setdefault(division.key, division)
    cells = CELLS // max(count, 1)
    values: Values = {
        "label": run.label,
        "seed": run.seed,
        "folder": run.folder.name,
        "dataset": run.summary.get("dataset", known.dataset),
        "algorithm": known.algorithm,
        "finished": run.finished,
        "done": run.history.rounds,
        "of": known.rounds,
        "rounds": run.history.numbers,
        "sent": list(run.history.sent),
        "seconds": rounded(run.history.seconds, 2),
        "values": {name: rounded(column) for name, column in run.history.values().items() if name not in _SUMS},
        "phases": {name: round(value, 3) for name, value in run.history.phases.items()},
        "failures": failures(run.summary, run.history),
        "division": division.key if division is not None else None,
        "sites": _sites(run.sites),
        "calibration": calibration(run.summary),
    }
    if detailed:
        values |= {
            "confusion": confusion(run.summary),
            "drift": drift(run.history, cells),
            "clients": history_of(run.history, cells),
            "settings": known.settings,
            "command": f"accord run {known.folder}/config.toml",
            "card": known.card,
            "versions": run.summary.get("versions", {}),
        }
    return values


_SUMS = ("bytes_up", "bytes_down", "start_bytes_up", "start_bytes_down")


def _sites(sites: Sites | None) -> dict[str, list[Any]]:
    """The columns that hold what was measured."""
    if sites is None:
        return {}
    apart = ("site", "client", "samples", "test_samples", "class", "class_share", "label_mean")
    return {name: rounded(column, 4) for name, column in sites.columns.items() if name not in apart}


def rounded(numbers: Iterable[float | None], digits: int = DIGITS) -> list[float | None]:
    """As many digits as a picture can show; what is no number is None."""
    return [None if n is None or not math.isfinite(n) else round(n, digits) for n in numbers]


def _judged(runs: Sequence[Run]) -> Values:
    judged = judged_by(next((run.summary for run in runs if run.finished), {}))
    problem = judged.problem
    return {
        "key": judged.key,
        "title": problem.title,
        "percent": problem.share,
        "higher": problem.higher_is_better,
        "personal": all(str(run.summary.get("judged_by", "")).startswith("personal") for run in runs),
    }


def _title(runs: Sequence[Run], names: Sequence[str]) -> str:
    data = sorted({str(run.summary.get("dataset", facts(run.folder).dataset)) for run in runs})
    what = names[0] if len(names) == 1 else f"{len(names)} methods"
    return f"{what} on {', '.join(data)}"


def _answer(runs: Sequence[Run], apart: Differences | None) -> Values:
    """The first screen: which one, by how much, how sure, and who is served worst."""
    over = [run for run in runs if run.finished]
    if not over:
        going = f"{len(runs)} run{'s' if len(runs) > 1 else ''} at work"
        return {"best": going, "number": "", "sure": "No run has come to its end yet.", "worst": "", "warnings": []}
    best = apart.rows[0].baseline if apart is not None and apart.rows else over[0].label
    of_best = [run for run in over if run.label == best]
    rows = aggregate({**run.summary, "algorithm": run.label} for run in of_best)
    leading = shown(rows)[0] if shown(rows) else None
    number = ""
    if leading is not None:
        cell = rows[0].cells[leading.key]
        spread = f" ± {leading.write(cell.std)}" if cell.std is not None else ""
        number = f"{leading.write(cell.mean)}{spread} {leading.title}"
    worst = worst_site(of_best[0].sites, of_best[0].summary) if of_best[0].sites is not None else ""
    warnings = [f"{run.label}, seed {run.seed}: {run.summary['diverged']}" for run in over if "diverged" in run.summary]
    left_out = sum(len(run.summary.get("left_out") or {}) for run in over)
    if left_out:
        warnings.append(f"{left_out} times a client was left out of a run: see Failures.")
    return {"best": best, "number": number, "sure": _sure(apart, of_best), "worst": worst, "warnings": warnings}


def _sure(apart: Differences | None, of_best: Sequence[Run]) -> str:
    if apart is not None and apart.sentence:
        return apart.sentence
    seeds = len(of_best)
    return f"{seeds} run{'s' if seeds > 1 else ''} of one method: nothing to compare it with."


def _apart(apart: Differences) -> Values:
    return {
        "title": apart.title,
        "remark": apart.remark,
        "titles": list(HEADINGS),
        "rows": [[row.algorithm, *apart.cells(row)] for row in apart.rows],
        "bars": [
            {"label": row.algorithm, "mean": row.mean, "low": row.low, "high": row.high, "apart": row.told_apart}
            for row in apart.rows
        ],
    }
