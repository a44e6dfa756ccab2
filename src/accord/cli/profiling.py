"""`accord profile`: where a round's time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from accord.cli.options import ConfigFile, DataDir, Sets, changes
from accord.config import load_config
from accord.wire.writing import as_text

if TYPE_CHECKING:
    from accord.engine.profile import Profile

WIDTH = 16  # of a full bar


def profile(
    config: ConfigFile = None,
    sets: Sets = None,
    algorithm: Annotated[str | None, typer.Option("--algorithm", "-a", help="The federated method.")] = None,
    data_dir: DataDir = None,
    rounds: Annotated[int, typer.Option(help="Rounds to measure, after one to warm up.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the seconds as JSON.")] = False,
) -> None:
    """Measure where a round's time goes; clients run one after another, and nothing is kept."""
    settings = load_config(config, changes(sets, algorithm=algorithm, data_dir=data_dir))
    from accord.engine.profile import profile as measure

    measured = measure(settings, rounds)
    if as_json:
        typer.echo(as_text({"rounds": measured.rounds, "seconds": dict(measured.seconds)}, indent=1))
    else:
        Console().print(table(measured, settings.algorithm.name))


def table(measured: Profile, method: str) -> Table:
    """A row per phase, with a bar of its share."""
    from accord.engine.profile import CLIENT, PHASES

    made = Table(title=f"{method}: {measured.total:.3f} s a round (mean of {measured.rounds})", title_justify="left")
    for heading, width in (("where", 7), ("phase", 10), ("seconds", 7), ("share", 6), ("", WIDTH)):
        made.add_column(heading, justify="right" if heading in ("seconds", "share") else "left", min_width=width)
    made.add_column("what")  # the only column that gives way on a narrow terminal
    for phase, meaning in PHASES.items():
        seconds = measured.seconds[phase]
        share = seconds / max(measured.total, 1e-12)
        where = "clients" if phase in CLIENT else "server"
        made.add_row(where, phase, f"{seconds:.4f}", f"{share:.1%}", "█" * round(WIDTH * share), meaning)
    return made
