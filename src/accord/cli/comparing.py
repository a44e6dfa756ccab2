"""`accord compare`: several algorithms over several seeds, a table and a picture; with --tune, tuned before.

A comparison that was stopped goes on where it was: finished runs are skipped, unfinished ones resumed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from accord.cli.guard import complain
from accord.cli.options import ConfigFile, DataDir, ExecutorName, Name, Out, Quiet, Rounds, Sets, changes
from accord.cli.planning import Comparison, Entry, Tuning, numbers, words
from accord.cli.running import watched
from accord.errors import ConfigError, RunError

if TYPE_CHECKING:
    from accord.cli.tuning import Study


def compare(
    algorithms: Annotated[str, typer.Option(metavar="A,B", help="Algorithms, separated by commas.")],
    config: ConfigFile = None,
    seeds: Annotated[str, typer.Option(metavar="0,1,2", help="Seeds, separated by commas.")] = "0,1,2",
    tune: Annotated[
        int | None,
        typer.Option(metavar="N", help="Search each algorithm's settings first: N trials on validation data."),
    ] = None,
    tune_rounds: Annotated[
        int | None, typer.Option(metavar="R", help="Rounds of a trial, if fewer than the runs have.")
    ] = None,
    sets: Sets = None,
    rounds: Rounds = None,
    out: Out = None,
    name: Name = None,
    executor: ExecutorName = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> None:
    """Run algorithms over seeds and tabulate mean and deviation; run it again to go on after a stop."""
    short = {"rounds": rounds, "out": out, "name": name, "executor": executor, "data_dir": data_dir}
    if tune is None and tune_rounds is not None:
        raise ConfigError("--tune-rounds goes with --tune N, the number of trials")
    tuning = Tuning(tune, tune_rounds) if tune is not None else None
    names, chosen_seeds = words(algorithms, "--algorithms"), numbers(seeds, "--seeds")
    comparison = Comparison(config, changes(sets, **short), names, chosen_seeds, tuning)
    study = search(comparison, quiet) if tuning is not None else None
    entries = comparison.entries(study.chosen if study is not None else None)
    failed: dict[str, str] = {}
    for position, entry in enumerate(entries, start=1):
        announce(entry, position, len(entries), quiet)
        try:
            carry_out(entry, quiet)
        except RunError as error:  # one that diverges must not cost the others
            failed[entry.label] = str(error)
            complain(f"{entry.label}: {error}")
    finished = [entry for entry in entries if entry.finished]
    write_results(comparison.folder, finished, failed, study, quiet)
    typer.echo(str(comparison.folder))
    if failed:
        raise RunError(f"{len(failed)} of {len(entries)} runs failed ({'; '.join(failed)})")


def search(comparison: Comparison, quiet: bool) -> Study:
    """Find the settings each algorithm does best with on validation data."""
    from accord.cli.tuning import carry_out_trial, plan_study

    study = plan_study(comparison)
    if not quiet:
        typer.echo(study.describe(), err=True)
    for position, trial in enumerate(study.trials, start=1):
        announce(trial, position, len(study.trials), quiet)
        carry_out_trial(trial, partial(carry_out, trial, quiet))
        if trial.failure is not None and not quiet:
            complain(trial.failure, f"{trial.label} counts as the worst: ")
    if not quiet:
        for algorithm, choice in study.choices.items():
            typer.echo(f"{algorithm}: {choice.words}", err=True)
    return study


def announce(entry: Entry, position: int, total: int, quiet: bool) -> None:
    """Which run is next, and what is left of it to do."""
    if not quiet:
        state = "finished before" if entry.finished else "goes on" if entry.begun else "new"
        typer.echo(f"[{position}/{total}] {entry.label}: {state}", err=True)


def carry_out(entry: Entry, quiet: bool) -> None:
    """What is left to do of one run."""
    from accord.engine.run import resume, run

    advice = "run the same command again to go on"
    if entry.finished:
        return
    if entry.begun:
        watched(lambda observers: resume(entry.folder, observers=observers), entry.config, quiet, advice)
    else:
        watched(lambda observers: run(entry.config, observers=observers), entry.config, quiet, advice)


def write_results(
    folder: Path, entries: Sequence[Entry], failed: Mapping[str, str], study: Study | None, quiet: bool
) -> None:
    """compare.json, table.md and curves.png beside the runs, and the table on the terminal."""
    from accord.engine.files import write_atomic
    from accord.report import aggregate, as_json, curves, markdown, read_metrics, read_summary, rich_table

    summaries = [read_summary(entry.folder) for entry in entries]
    rows = aggregate(summaries)
    runs = [{"folder": e.folder.name, **summary} for e, summary in zip(entries, summaries, strict=True)]
    results: dict[str, Any] = {"rows": as_json(rows), "runs": runs, "failed": dict(failed)}
    if study is not None:
        results["tuning"] = study.as_json()
    write_atomic(folder / "compare.json", json.dumps(results, indent=2) + "\n")
    if not rows:
        return
    write_atomic(folder / "table.md", markdown(rows) + (study.markdown() if study is not None else ""))
    by_algorithm = {
        row.algorithm: [read_metrics(e.folder) for e in entries if e.config.algorithm.name == row.algorithm]
        for row in rows
    }
    try:
        curves(folder / "curves.png", by_algorithm)
    except ConfigError as missing:
        complain(str(missing), "no curves.png: ")
    if not quiet:
        console = Console()
        if not console.is_terminal:
            console.width = max(console.width, 160)  # a log file has room; do not fold the columns
        console.print(rich_table(rows))
