"""`accord reproduce`: a paper's table with our numbers beside the printed ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from accord.cli.guard import Stopped
from accord.cli.lists import numbers, words
from accord.cli.options import Quiet, Sets
from accord.cli.running import write_page
from accord.errors import ConfigError, RunError


def reproduce(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Experiments (`accord list experiments`), or parts: cross:own,fedavg@mmd."),
    ] = None,
    rows: Annotated[str | None, typer.Option(metavar="A,B", help="Rows of its table; without them, all.")] = None,
    places: Annotated[str | None, typer.Option(metavar="A,B", help="Its federations; without them, all.")] = None,
    seeds: Annotated[str, typer.Option(metavar="0,1,2", help="Seeds; the first of all rows comes first.")] = "0",
    scale: Annotated[str, typer.Option(help="full; short: fewer rounds; smoke: a minute, on embedded data.")] = "full",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    jobs: Annotated[int, typer.Option(help="Runs at a time, each in a process of its own.")] = 1,
    minutes: Annotated[float | None, typer.Option(help="Leave in that time; the same command goes on later.")] = None,
    runs: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the runs.")] = Path("runs/reproduce"),
    results: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the records.")] = Path("results"),
    docs: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the pages.")] = Path("docs/results"),
    sets: Sets = None,
    mps: Annotated[bool, typer.Option("--mps", help="Let the runs share the GPU (NVIDIA MPS).")] = False,
    note: Annotated[str, typer.Option(help="A remark on the hardware, for the records.")] = "",
    show: Annotated[bool, typer.Option("--show", help="Run nothing, print what is there.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Write its paper's page and figures; run nothing.")] = False,
    pages: Annotated[bool, typer.Option("--pages", help="Write all pages and figures; run nothing.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run what is missing of an experiment, or of several as one queue, and print the papers' numbers beside ours."""
    from accord.papers import reproduction
    from accord.papers.asked import asked

    parts = asked(
        ids or (),
        words(rows, "--rows") if rows is not None else (),
        words(places, "--places") if places is not None else (),
    )
    if not (parts or pages):
        raise ConfigError("name an experiment, such as ufo-t1; `accord list experiments` shows them all")
    if pages or page:
        _write(None if pages else list(dict.fromkeys(one.experiment.paper for one in parts)), results, docs)
        return
    try:
        found = reproduction.reproduce_all(
            parts,
            seeds=numbers(seeds, "--seeds"),
            scale=cast(Literal["full", "short", "smoke"], scale),
            device=device,
            jobs=jobs,
            minutes=minutes,
            runs=runs,
            results=results,
            sets=sets or (),
            mps=mps,
            note=note,
            only_show=show,
            say=(lambda text: None) if quiet else (lambda text: typer.echo(text, err=True)),
        )
    except KeyboardInterrupt as stop:
        raise Stopped("run the same command again to go on") from stop
    typer.echo("\n\n".join(one.text for one in found))
    folders: dict[str, list[Path]] = {}
    for one in found:  # two parts of an experiment are one page
        known = folders.setdefault(one.table.experiment.id, [])
        known += [folder for folder in one.folders if folder not in known]
    for id, of_it in folders.items():
        if of_it:
            write_page(of_it, runs / f"{id}-{scale}.html", quiet)
    failed = list(dict.fromkeys(label for one in found for label in one.failed))
    if failed:
        raise RunError(f"{len(failed)} runs failed: {'; '.join(failed)}")


def _write(papers: list[str] | None, results: Path, docs: Path) -> None:
    from accord.papers.pages import write_pages

    for path in write_pages(results, docs, papers):
        typer.echo(str(path))
