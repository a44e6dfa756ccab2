"""The commands of `accord`."""

from __future__ import annotations

import platform
from importlib import metadata

import typer

from accord._version import __version__
from accord.cli import catalogue, comparing, describing, profiling, running, using
from accord.cli.guard import Guarded
from accord.cli.own_data import takes_own_data

app = typer.Typer(
    name="accord",
    cls=Guarded,
    help="Federated learning that agrees, on data that doesn't.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("run")(takes_own_data(running.run))
app.command("resume")(running.resume)
app.command("compare")(takes_own_data(comparing.compare))
app.command("predict")(using.predict)
app.command("export")(using.export)
app.command("list")(catalogue.list_)
app.command("explain")(takes_own_data(catalogue.explain))
app.command("describe")(takes_own_data(describing.describe))
app.command("profile")(takes_own_data(profiling.profile))


@app.command()
def version() -> None:
    """The version, and those of the packages that shape the numbers."""
    typer.echo(f"accord {__version__}")
    typer.echo(f"python {platform.python_version()}")
    for package in ("torch", "numpy", "safetensors"):
        typer.echo(f"{package} {metadata.version(package)}")
