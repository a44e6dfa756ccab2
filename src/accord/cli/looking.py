"""`accord report` and `accord watch`: runs as a page."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from accord.errors import ConfigError

Runs = Annotated[list[Path], typer.Argument(help="Folders of runs or comparisons, or folders that hold some.")]


def report(
    runs: Runs,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page's file; else report.html in the first folder.")
    ] = None,
) -> None:
    """Write finished runs as one page: a file without anything beside it, to be looked at, sent or printed."""
    from accord.report.page import write_report
    from accord.report.sizes import human_bytes

    target = out or runs[0] / "report.html"
    if target.is_dir():
        raise ConfigError(f"--out {target} is a folder: name a file, such as {target / 'report.html'}")
    written = write_report(runs, target)
    typer.echo(f"report: {written} ({human_bytes(written.stat().st_size)})")


def watch(
    runs: Runs,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of this machine; 0: any that is free.")] = 0,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    terminal: Annotated[bool, typer.Option("--terminal", help="Show curves here instead of serving a page.")] = False,
) -> None:
    """Follow runs while they go on: a page for this machine alone, or curves in the terminal. Ctrl-C ends it."""
    if terminal and (open_page or port):
        raise ConfigError("--terminal shows everything here: leave out --port and --open")
    try:
        if terminal:
            from accord.report.live import follow

            follow(runs, Console())
            return
        from accord.report.page.watching import serve

        def ready(address: str) -> None:
            typer.echo(f"following on {address} (Ctrl-C ends it)")
            if open_page:
                webbrowser.open(address)

        serve(runs, port, ready)
    except KeyboardInterrupt:
        typer.echo("ended")
