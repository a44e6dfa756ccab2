"""`accord run` and `accord resume`."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from accord.cli.guard import Stopped, complain
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
from accord.config import RunConfig, load_config, to_toml
from accord.errors import ConfigError
from accord.observe import Observer, RichProgress
from accord.trackers import observers_for

if TYPE_CHECKING:
    from accord.engine.run import Outcome


class Whereabouts(Observer):
    """Remembers the run's folder, for the message after Ctrl-C."""

    folder: Path | None = None

    def started(self, config: RunConfig, folder: Path, total_rounds: int, first_round: int) -> None:
        self.folder = folder


def run(
    config: ConfigFile = None,
    sets: Sets = None,
    algorithm: Annotated[str | None, typer.Option("--algorithm", "-a", help="The federated method.")] = None,
    rounds: Rounds = None,
    seed: Annotated[int | None, typer.Option(help="Everything random follows from it.")] = None,
    out: Out = None,
    name: Name = None,
    executor: ExecutorName = None,
    data_dir: DataDir = None,
    log: Log = None,
    quiet: Quiet = False,
    page: Page = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the complete configuration only.")] = False,
) -> None:
    """Train a model in a simulated federation.

    `accord settings` prints every KEY that --set takes, `accord settings lr` those about learning rates; --dry-run
    prints the whole configuration as a file that can be edited and given back.
    """
    short = {"algorithm": algorithm, "rounds": rounds, "seed": seed, "out": out, "name": name}
    settings = load_config(config, changes(sets, **short, executor=executor, data_dir=data_dir) + logs(log))
    if dry_run:
        typer.echo(to_toml(settings), nl=False)
        return
    from accord.engine.run import run as start

    report(watched(lambda observers: start(settings, observers=observers), settings, quiet), quiet, page)


def resume(
    folder: Annotated[Path, typer.Argument(help="Folder of a run that was stopped.")],
    quiet: Quiet = False,
    page: Page = True,
) -> None:
    """Go on with a stopped run; the result is the same as without the stop."""
    from accord.engine.folder import read_config
    from accord.engine.run import resume as go_on

    settings = read_config(folder)
    report(watched(lambda observers: go_on(folder, observers=observers), settings, quiet), quiet, page)


def watched(work: Callable[[Sequence[Observer]], Outcome], config: RunConfig, quiet: bool) -> Outcome:
    """Carry out `work` with the observers the configuration asks for; Ctrl-C says how to go on."""
    where = Whereabouts()
    observers = [where, *observers_for(config), *([] if quiet else [RichProgress()])]
    try:
        return work(observers)
    except KeyboardInterrupt as stop:
        if where.folder is None:
            raise
        raise Stopped(f"go on with: accord resume {shlex.quote(str(where.folder))}") from stop
    finally:
        for observer in observers:
            observer.close()


def report(outcome: Outcome, quiet: bool, page: bool = False) -> None:
    """The table at the end of a run, its picture and its page, and where everything is."""
    from accord.figures import judged_value
    from accord.report import curves, run_lines

    folder, summary = outcome.folder, outcome.summary
    with contextlib.suppress(ConfigError):  # a picture is an extra: without matplotlib there is none
        runs = {str(summary.get("algorithm", folder.name)): [outcome.metrics]}
        curves(folder / "curves.png", runs, judged_value(runs, [summary]))
    if not quiet:
        table = Table(show_header=False, title=Text(f"{summary.get('algorithm', '')}, {folder.name}"))
        table.add_column()
        table.add_column(justify="right")
        for title, value in run_lines(summary):
            table.add_row(Text(title), Text(value))
        Console().print(table)
        show_sites(folder, summary)
        if summary.get("note"):
            typer.echo(f"note: {summary['note']}")
    say_left_out(summary)
    if page:
        write_page([folder], folder / "report.html", quiet)
    typer.echo(str(folder))


def write_page(folders: Sequence[Path], target: Path, quiet: bool) -> None:
    """The runs in or below some folders as one page."""
    from accord.report.page import write_report

    written = write_report(folders, target)
    if not quiet:
        typer.echo(f"report: {written}")


def show_sites(folder: Path, summary: Mapping[str, Any]) -> None:
    """The table of sites and the worst of them, or how to have it."""
    from accord.engine.sites import read_sites
    from accord.report.sites import TURN_ON, remarks, sites_table

    sites, console = read_sites(folder), Console()
    if sites is None:
        typer.echo(f"No table of sites, as nothing was measured at the clients: {TURN_ON}.")
        return
    console.print(sites_table(sites, summary, console.width))
    for line in remarks(sites, summary, folder):
        typer.echo(line)


def say_left_out(summary: Mapping[str, Any], label: str = "") -> None:
    """On stderr, however quiet: the numbers are not those of all clients."""
    from accord.engine.missing import line

    if said := line(summary):
        complain(said, f"{label}warning: ")
