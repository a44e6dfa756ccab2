"""`accord compare`: several algorithms over several seeds, a table and a picture.

A comparison that was stopped goes on where it was: finished runs are skipped, unfinished ones resumed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from accord.cli.guard import complain
from accord.cli.options import ConfigFile, DataDir, ExecutorName, Name, Out, Quiet, Rounds, Sets, changes
from accord.cli.planning import Entry, numbers, plan, words
from accord.cli.running import watched
from accord.errors import ConfigError, RunError


def compare(
    algorithms: Annotated[str, typer.Option(metavar="A,B", help="Algorithms, separated by commas.")],
    config: ConfigFile = None,
    seeds: Annotated[str, typer.Option(metavar="0,1,2", help="Seeds, separated by commas.")] = "0,1,2",
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
    names, chosen = words(algorithms, "--algorithms"), numbers(seeds, "--seeds")
    entries = plan(config, changes(sets, **short), names, chosen)
    folder = entries[0].folder.parent
    failed: dict[str, str] = {}
    for position, entry in enumerate(entries, start=1):
        if not quiet:
            state = "finished before" if entry.finished else "goes on" if entry.begun else "new"
            typer.echo(f"[{position}/{len(entries)}] {entry.label}: {state}", err=True)
        try:
            carry_out(entry, quiet)
        except RunError as error:  # one that diverges must not cost the others
            failed[entry.label] = str(error)
            complain(f"{entry.label}: {error}")
    write_results(folder, [entry for entry in entries if entry.finished], failed, quiet)
    typer.echo(str(folder))
    if failed:
        raise RunError(f"{len(failed)} of {len(entries)} runs failed ({'; '.join(failed)})")


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


def write_results(folder: Path, entries: Sequence[Entry], failed: Mapping[str, str], quiet: bool) -> None:
    """compare.json, table.md and curves.png beside the runs, and the table on the terminal."""
    from accord.engine.files import write_atomic
    from accord.report import aggregate, as_json, curves, markdown, read_metrics, read_summary, rich_table

    summaries = [read_summary(entry.folder) for entry in entries]
    rows = aggregate(summaries)
    runs = [{"folder": e.folder.name, **summary} for e, summary in zip(entries, summaries, strict=True)]
    results = {"rows": as_json(rows), "runs": runs, "failed": dict(failed)}
    write_atomic(folder / "compare.json", json.dumps(results, indent=2) + "\n")
    if not rows:
        return
    write_atomic(folder / "table.md", markdown(rows))
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
