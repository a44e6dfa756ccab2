"""The commands of `accord`."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import metadata

import typer

from accord._version import __version__
from accord.cli import (
    catalogue,
    comparing,
    describing,
    diagnosing,
    doctor,
    federation,
    looking,
    profiling,
    reproducing,
    running,
    settings,
    tabulating,
    using,
)
from accord.cli.guard import Guarded
from accord.cli.importing import importing
from accord.cli.own_data import takes_own_data

app = typer.Typer(
    name="accord",
    cls=Guarded,
    help="Federated learning that agrees, on data that doesn't.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
COMMANDS: dict[str, Callable[..., None]] = {
    "run": takes_own_data(running.run),
    "resume": running.resume,
    "compare": takes_own_data(comparing.compare),
    "reproduce": reproducing.reproduce,
    "predict": using.predict,
    "export": using.export,
    "list": catalogue.list_,
    "explain": takes_own_data(catalogue.explain),
    "describe": takes_own_data(describing.describe),
    "diagnose": takes_own_data(diagnosing.diagnose),
    "profile": takes_own_data(profiling.profile),
    "settings": settings.settings,
    "table": tabulating.table,
    "report": looking.report,
    "watch": looking.watch,
    "doctor": doctor.doctor,
}
for name, command in COMMANDS.items():
    app.command(name, cls=comparing.Several if name == "compare" else None)(importing(command))
app.add_typer(federation.federation)


@app.command()
def version() -> None:
    """The version, and those of the packages that shape the numbers."""
    typer.echo(f"accord {__version__}")
    typer.echo(f"python {platform.python_version()}")
    for package in ("torch", "numpy", "safetensors"):
        typer.echo(f"{package} {metadata.version(package)}")
