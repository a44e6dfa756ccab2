"""`accord compare`: algorithms, variants and sweeps over several seeds, a table and a picture; also tuned before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperCommand

from accord.cli.bars import Bars
from accord.cli.guard import Stopped, complain
from accord.cli.lists import numbers, variants
from accord.cli.options import (
    ConfigFile,
    DataDir,
    ExecutorName,
    Log,
    Name,
    Out,
    Page,
    Quiet,
    Rounds,
    Sets,
    changes,
    logs,
)
from accord.cli.running import say_left_out, write_page
from accord.cli.width import wide_console, width, wrapped
from accord.errors import RunError
from accord.observe import Observer, RichProgress, headline
from accord.study.progress import Progress
from accord.trackers import observers_for

if TYPE_CHECKING:
    from accord.config import RunConfig
    from accord.report import Row
    from accord.report.differences import Differences
    from accord.study.choice import Choice
    from accord.study.entry import Entry
    from accord.study.trials import Trial


class Several(TyperCommand):
    """Takes `--algorithms A B C` for `--algorithms A --algorithms B --algorithms C`; a file's name ends the list."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spread: list[str] = []
        repeated = ""
        for position, word in enumerate(args):
            if word.startswith("-"):
                repeated = word if word in ("--algorithms", "--sweep") else ""
            elif repeated and args[position - 1] != repeated and not word.endswith(".toml"):
                spread.append(repeated)
            spread.append(word)
        return super().parse_args(ctx, spread)


def compare(
    algorithms: Annotated[
        list[str],
        typer.Option(
            metavar="A,B", help='Algorithms: fedavg,scaffold; with settings: "fedprox: mu=0.1" "fedprox: mu=1".'
        ),
    ],
    config: ConfigFile = None,
    seeds: Annotated[str, typer.Option(metavar="0,1,2", help="Seeds, separated by commas.")] = "0,1,2",
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V,V", help="A setting with its values, algorithm.mu=0.1,1; several make a grid."),
    ] = None,
    tune: Annotated[
        int | None,
        typer.Option(metavar="N", help="Search each algorithm's settings first: N trials on validation data."),
    ] = None,
    tune_rounds: Annotated[
        int | None, typer.Option(metavar="R", help="Rounds of a trial, if fewer than the runs have.")
    ] = None,
    jobs: Annotated[str, typer.Option(metavar="N", help="Runs at a time; auto: as many as pay.")] = "1",
    on: Annotated[
        str, typer.Option(metavar="PLACE", help="here, or ray: every run a task of the Ray cluster (RAY_ADDRESS).")
    ] = "here",
    baseline: Annotated[
        str | None, typer.Option(metavar="A", help="Print differences to this one; else to the best.")
    ] = None,
    by: Annotated[str | None, typer.Option(metavar="VALUE", help="Print differences in this value.")] = None,
    sets: Sets = None,
    rounds: Rounds = None,
    out: Out = None,
    name: Name = None,
    executor: ExecutorName = None,
    data_dir: DataDir = None,
    log: Log = None,
    quiet: Quiet = False,
    page: Page = True,
) -> None:
    """Run algorithms over seeds and tabulate mean and deviation; run it again to go on after a stop."""
    from accord.study.comparison import compare as carry_out

    short = {"rounds": rounds, "out": out, "name": name, "executor": executor, "data_dir": data_dir}
    at_a_time = jobs_of(jobs)
    alone = at_a_time == 1 and on == "here"
    terminal = Terminal(quiet, several=not alone)
    try:
        result = carry_out(
            variants(algorithms, "--algorithms"),
            config=config,
            sets=changes(sets, **short) + logs(log),
            seeds=numbers(seeds, "--seeds"),
            sweep=sweep or (),
            tune=tune,
            tune_rounds=tune_rounds,
            jobs=at_a_time,
            on=cast(Any, on),  # checked there
            observers=watching if alone and not quiet else observers_for,
            progress=terminal,
        )
    except KeyboardInterrupt as stop:
        if not terminal.begun:
            raise
        raise Stopped("run the same command again to go on") from stop
    finally:
        terminal.close()
    apart = result.differences(baseline, by)
    if result.rows and not quiet:
        show(result.rows, apart)
    for run, summary in result.summaries.items():
        say_left_out(summary, f"{run.label}: ")
    picture = result.folder / "curves.png"
    if picture.is_file() and not quiet:
        typer.echo(f"picture: {picture}")
    if page and result.summaries:
        write_page([result.folder], result.folder / "report.html", quiet)
    typer.echo(str(result.folder))
    if result.failed:
        total = len(result.failed) + len(result.summaries)
        labels = "; ".join(run.label for run in result.failed)
        raise RunError(f"{len(result.failed)} of {total} runs failed ({labels})")


def jobs_of(text: str) -> int | str:
    """A number, or `auto`."""
    return int(text) if text.strip().isdecimal() else text.strip()


def watching(config: RunConfig) -> list[Observer]:
    """What the configuration asks for, and bars."""
    return [*observers_for(config), RichProgress()]


class Terminal(Progress):
    """Says on stderr how a comparison goes; when `quiet`, only which runs failed and what is missing.

    When `several` runs go side by side, each has a bar on a terminal, and a line at its end elsewhere.
    """

    def __init__(self, quiet: bool, several: bool = False) -> None:
        self._quiet, self._several = quiet, several
        self._bars: Bars | None = None
        self.begun = False

    def tuning(self, description: str) -> None:
        """What the trials are."""
        self._say(description)

    def started(self, entry: Entry, position: int, total: int) -> None:
        """Which run is next, and what is left of it to do."""
        self.begun = self.begun or not entry.finished
        state = "finished before" if entry.finished else "goes on" if entry.begun else "new"
        self._say(f"[{position}/{total}] {entry.label}: {state}")
        if self._several and not self._quiet and not entry.finished:
            self._bars = self._bars or Bars()
            self._bars.add(entry.label, entry.config.rounds)

    def advanced(self, entry: Entry, round: int, record: Mapping[str, float]) -> None:
        """Its bar moves."""
        if self._bars is not None:
            self._bars.move(entry.label, round, headline(record))

    def ended(self, entry: Entry) -> None:
        """Its bar goes."""
        if self._bars is not None:
            self._bars.remove(entry.label)

    def trial_failed(self, trial: Trial, reason: str) -> None:
        """Part of a search, so no error."""
        if not self._quiet:
            complain(reason, f"{trial.label} counts as the worst: ")

    def chosen(self, algorithm: str, choice: Choice) -> None:
        """The settings of the runs."""
        self._say(f"{algorithm}: {choice.words}")

    def run_failed(self, entry: Entry, reason: str) -> None:
        """An error, though the others go on."""
        self.ended(entry)
        complain(f"{entry.label}: {reason}")

    def not_drawn(self, reason: str) -> None:
        """Without matplotlib."""
        complain(reason, "no curves.png: ")

    def close(self) -> None:
        """Give the terminal back."""
        if self._bars is not None:
            self._bars.close()
            self._bars = None

    def _say(self, line: str) -> None:
        if self._quiet:
            return
        if self._bars is not None:
            self._bars.say(line)
        else:
            typer.echo(line, err=True)


def show(rows: Sequence[Row], apart: Differences | None) -> None:
    """The tables on the terminal."""
    from accord.report import rich_table
    from accord.report.formats import differences_table
    from accord.report.tables import unmeasured

    console = wide_console()
    console.print(rich_table(rows, width()))
    if said := unmeasured(rows):
        typer.echo(said)
    if apart is not None and apart.rows:
        console.print(differences_table(apart))
        if apart.sentence:
            typer.echo(wrapped(apart.sentence))
