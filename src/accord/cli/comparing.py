"""`accord compare`: several algorithms over several seeds, a table and a picture; with --tune, tuned before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from accord.cli.guard import Stopped, complain
from accord.cli.lists import numbers, words
from accord.cli.options import ConfigFile, DataDir, ExecutorName, Name, Out, Quiet, Rounds, Sets, changes
from accord.cli.running import Whereabouts, say_left_out
from accord.errors import RunError
from accord.observe import Observer, RichProgress, observers_for
from accord.study.progress import Progress

if TYPE_CHECKING:
    from accord.config import RunConfig
    from accord.report import Row
    from accord.study.choice import Choice
    from accord.study.entry import Entry
    from accord.study.trials import Trial


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
    from accord.study.comparison import compare as carry_out

    short = {"rounds": rounds, "out": out, "name": name, "executor": executor, "data_dir": data_dir}
    where = Whereabouts()

    def observers(config: RunConfig) -> list[Observer]:
        return [where, *observers_for(config), *([] if quiet else [RichProgress()])]

    try:
        result = carry_out(
            words(algorithms, "--algorithms"),
            config=config,
            sets=changes(sets, **short),
            seeds=numbers(seeds, "--seeds"),
            tune=tune,
            tune_rounds=tune_rounds,
            observers=observers,
            progress=Terminal(quiet),
        )
    except KeyboardInterrupt as stop:
        if where.folder is None:
            raise
        raise Stopped("run the same command again to go on") from stop
    if result.rows and not quiet:
        show(result.rows)
    for run, summary in result.summaries.items():
        say_left_out(summary, f"{run.label}: ")
    typer.echo(str(result.folder))
    if result.failed:
        total = len(result.failed) + len(result.summaries)
        labels = "; ".join(run.label for run in result.failed)
        raise RunError(f"{len(result.failed)} of {total} runs failed ({labels})")


class Terminal(Progress):
    """Says on stderr how a comparison goes; when `quiet`, only which runs failed and what is missing."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def tuning(self, description: str) -> None:
        """What the trials are."""
        self._say(description)

    def started(self, entry: Entry, position: int, total: int) -> None:
        """Which run is next, and what is left of it to do."""
        state = "finished before" if entry.finished else "goes on" if entry.begun else "new"
        self._say(f"[{position}/{total}] {entry.label}: {state}")

    def trial_failed(self, trial: Trial, reason: str) -> None:
        """Part of a search, so no error."""
        if not self._quiet:
            complain(reason, f"{trial.label} counts as the worst: ")

    def chosen(self, algorithm: str, choice: Choice) -> None:
        """The settings of the runs."""
        self._say(f"{algorithm}: {choice.words}")

    def run_failed(self, entry: Entry, reason: str) -> None:
        """An error, though the others go on."""
        complain(f"{entry.label}: {reason}")

    def not_drawn(self, reason: str) -> None:
        """Without matplotlib."""
        complain(reason, "no curves.png: ")

    def _say(self, line: str) -> None:
        if not self._quiet:
            typer.echo(line, err=True)


def show(rows: Sequence[Row]) -> None:
    """The table on the terminal."""
    from accord.report import rich_table
    from accord.report.tables import unmeasured

    console = Console()
    if console.is_terminal:
        console.print(rich_table(rows, console.width))
    else:  # a log file has room; do not fold the columns
        console.width = 1000
        console.print(rich_table(rows))
    if said := unmeasured(rows):
        typer.echo(said)
