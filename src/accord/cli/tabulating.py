"""`accord table`: mean and deviation over seeds of runs that exist already."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accord.cli.comparing import show
from accord.errors import ConfigError


def table(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs or comparisons, or folders that hold some.")],
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX, for the booktabs package.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, with all digits.")] = False,
    baseline: Annotated[
        str | None, typer.Option(metavar="A", help="Print differences to this one; else to the best.")
    ] = None,
    by: Annotated[str | None, typer.Option(metavar="VALUE", help="Print differences in this value.")] = None,
) -> None:
    """Tabulate finished runs: a row per algorithm and settings, mean and deviation over seeds."""
    if markdown + latex + as_csv > 1:
        raise ConfigError("--markdown, --latex and --csv: choose one of them")
    from accord.report import formats
    from accord.report import markdown as as_markdown
    from accord.report.collection import collect
    from accord.report.differences import differences
    from accord.report.tables import aggregate

    found = collect(runs)
    rows = aggregate({**summary, "algorithm": label} for (label, _), summary in found.items())
    apart = differences(found, baseline, by)
    if latex:
        typer.echo(formats.latex(rows), nl=False)
    elif as_csv:
        typer.echo(formats.comma_separated(rows), nl=False)
    elif markdown:
        below = f"\n{formats.differences_markdown(apart)}" if apart is not None else ""
        typer.echo(as_markdown(rows) + below, nl=False)
    else:
        show(rows, apart)
