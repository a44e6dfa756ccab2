"""`accord diagnose`: how non-IID a federation is, and what to do about it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from accord.cli.options import DataDir, Sets, changes
from accord.cli.own_data import own_data
from accord.cli.width import wrapped
from accord.config import load_config
from accord.errors import ConfigError

What = Annotated[
    str | None,
    typer.Argument(metavar="[CONFIG|DATA]", help="A TOML file, or data as --data takes it; without one, the defaults."),
]


def diagnose(
    what: What = None,
    sets: Sets = None,
    data_dir: DataDir = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the samples that are drawn, and of the division.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Without the probe: nothing is trained.")] = False,
    page: Annotated[Path | None, typer.Option(metavar="FILE", help="Also as a page with pictures.")] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also as numbers and sentences.")] = None,
) -> None:
    """Say how unlike the clients are, finding by finding, and which methods and settings that calls for."""
    for name, file in (("--page", page), ("--json", json)):
        if file is not None and file.is_dir():
            raise ConfigError(f"{name} {file} is a folder: name a file, such as {file / ('diagnosis.' + _end(name))}")
    config, own = _told_apart(what, sets)
    settings = load_config(config, changes([*own, *(sets or [])], data_dir=data_dir, seed=seed))
    from accord.diagnosis import looked_over
    from accord.diagnosis.text import as_lines
    from accord.engine.build import build_data

    data = build_data(settings)
    console = Console(stderr=True)
    with console.status("reading") if console.is_terminal else _Silent() as status:
        found = looked_over(data, settings, quick=quick, told=lambda now: status.update(f"looking at {now}"))
    found = replace(found, command=_next(what, sets, data_dir, found.suggestion.methods))
    for line in as_lines(found, wrapped):
        typer.echo(line)
    if data.note:
        typer.echo(wrapped(f"note: {data.note}"))
    if json is not None:
        typer.echo(f"numbers: {found.json(json)}")
    if page is not None:
        typer.echo(f"page: {found.page(page)}")


def _next(what: str | None, sets: list[str] | None, data_dir: str | None, methods: tuple[str, ...]) -> str:
    """The comparison that the suggestion asks for, of the same data."""
    words = ["accord", "compare"]
    words += [] if what is None else [what] if what.endswith(".toml") else ["--data", what]
    words += [word for text in sets or [] for word in ("--set", text)]
    words += [] if data_dir is None else ["--data-dir", data_dir]
    return shlex.join([*words, "--algorithms", ",".join(methods), "--tune", "8"])


def _end(name: str) -> str:
    return "html" if name == "--page" else "json"


def _told_apart(what: str | None, sets: list[str] | None) -> tuple[Path | None, list[str]]:
    """A configuration by its ending; anything else is data."""
    if what is None or what.endswith(".toml"):
        return (None if what is None else Path(what)), []
    if any(text.startswith("data.name=") for text in sets or []):
        raise ConfigError(f"the data is named twice, as {what!r} and by --data: name it once")
    return None, own_data(data=what)


class _Silent:
    """In the place of a line that changes, where there is no terminal."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to give back."""

    def update(self, text: str) -> None:
        """Nobody looks."""
