"""`accord federation`: a real federation on Flower, on this machine or a part of one on several."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accord.cli.federation_parts import admit, expel, keys, node, schema, server, summary
from accord.cli.guard import Stopped
from accord.cli.importing import importing
from accord.cli.lists import words
from accord.cli.options import ConfigFile, Log, Name, Quiet, Rounds, Sets, changes, logs
from accord.cli.running import report, watched
from accord.config import RunConfig, load_config, to_toml
from accord.errors import ConfigError
from accord.federation.installed import require_flower

if TYPE_CHECKING:
    from accord.engine.run import Outcome
    from accord.federation.folder import Folder
    from accord.observe import Observer

DEFAULT = Path("federation")
Place = Annotated[Path, typer.Argument(metavar="[FOLDER]", help="The federation's folder.")]
Of = Annotated[Path, typer.Option("--federation", "-f", metavar="FOLDER", help="The federation's folder.")]
Columns = "Columns of the sites' tables"
TABLES = (".csv", ".tsv", ".parquet")

federation = typer.Typer(
    name="federation",
    help="A real federation on Flower: SuperLink and nodes as processes, TLS, a key per node, each with its own data.",
    no_args_is_help=True,
)


def up(
    folder: Place = DEFAULT,
    data: Annotated[
        list[str] | None, typer.Option("--data", metavar="SITE=PATH", help="A site and its own file; once per site.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Instead of --data: divide the digits that come with Accord into N sites.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="With --nodes: how to divide, e.g. partition.alpha=0.1."),
    ] = None,
    label: Annotated[str | None, typer.Option(help="The column to be predicted.", rich_help_panel=Columns)] = None,
    features: Annotated[
        str | None, typer.Option(metavar="A,B", help="The columns to learn from; all others.", rich_help_panel=Columns)
    ] = None,
    categorical: Annotated[
        str | None, typer.Option(metavar="A,B", help="Columns of words or codes.", rich_help_panel=Columns)
    ] = None,
    missing: Annotated[
        str | None, typer.Option(help="Missing values: error, mean or drop.", rich_help_panel=Columns)
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="What is learned: classification or regression.", rich_help_panel=Columns)
    ] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="The SuperLink's; else a free one.")] = None,
) -> None:
    """Start a federation on this machine, or what of it does not run.

    The first call makes everything in FOLDER: certificates, a key and a node.toml for each site. A later one without
    --data starts the same federation again, also after a crash; nothing is lost. `accord federation down` ends it.
    """
    require_flower()
    from accord.federation.folder import Folder, State, read_state, write_state
    from accord.federation.sites import add_site, deal, make_server, tables
    from accord.federation.superlink import free_port
    from accord.federation.up import bring_up

    here = Folder(folder)
    if data and nodes:
        raise ConfigError("--data and --nodes: choose one of them")
    given: Mapping[str, Mapping[str, Any]] = _sites(
        data or [], {"label": label, "missing": missing, "task": task}, features, categorical
    )
    if not (given or nodes or here.sites):
        raise ConfigError(
            f"there is no federation in {folder} yet: name its sites and their files, --data lyon=lyon.csv --data "
            "pau=pau.csv --label COLUMN, or --nodes 3 for the digits that come with Accord"
        )
    make_server(here)
    if given and all("label" in said for said in given.values()):
        given = tables(here, given)
    if nodes:
        from accord.engine.build import build_data

        divided = load_config(None, [*(sets or []), f"partition.clients={nodes}"])
        given = deal(here, build_data(divided), to_toml(divided))
    state = read_state(here) or State(port=port or free_port())
    write_state(here, state)
    for site, said in given.items():
        add_site(here, site, said, state.address)
    bring_up(here, typer.echo, port=port)
    typer.echo(f"up: {len(here.sites)} nodes. Next: accord federation run{_option(folder)} --algorithm fedavg")


def run(
    config: ConfigFile = None,
    folder: Of = DEFAULT,
    sets: Sets = None,
    algorithm: Annotated[str | None, typer.Option("--algorithm", "-a", help="The federated method.")] = None,
    rounds: Rounds = None,
    seed: Annotated[int | None, typer.Option(help="Everything random follows from it.")] = None,
    name: Name = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with a run that was stopped, from its folder.")
    ] = None,
    log: Log = None,
    quiet: Quiet = False,
) -> None:
    """Run a method on a federation that is up; results lie in FOLDER/runs as a simulation's do.

    After a crash of the server: `accord federation up FOLDER`, then `accord federation run --resume FOLDER/runs/NAME`
    goes on from the last exchange, to the same bits.
    """
    require_flower()
    from accord.federation.folder import Folder

    short = {"algorithm": algorithm, "rounds": rounds, "seed": seed, "name": name}
    if resume is not None:
        from accord.engine.folder import read_config

        if config or sets or log or any(value is not None for value in short.values()):
            raise ConfigError("--resume goes on with the run as it was begun: give no other settings")
        settings, place = read_config(resume), resume
    else:
        settings = for_all(Folder(folder), load_config(config, [*changes(sets, **short), *logs(log)]))
        place = new_place(Folder(folder), settings)
    carry_out(Folder(folder), settings, place, quiet)


def status(folder: Place = DEFAULT) -> None:
    """Say which processes of a federation run; exit code 1 unless all do."""
    from accord.federation.folder import Folder
    from accord.federation.up import condition

    found = condition(Folder(folder))
    if not found.nodes and not found.superlink:
        raise ConfigError(f"there is no federation in {folder}: accord federation up --help")
    typer.echo(f"SuperLink  {'up at ' + found.address if found.superlink else 'down'}")
    for site, runs in found.nodes.items():
        typer.echo(f"{site}  {'up' if runs else 'down'}")
    if not (found.superlink and all(found.nodes.values())):
        raise typer.Exit(1)


def down(folder: Place = DEFAULT) -> None:
    """End all processes of a federation, also those an `up` that crashed has left; files stay."""
    from accord.federation.folder import Folder
    from accord.federation.up import bring_down

    if not folder.is_dir():
        raise ConfigError(f"there is no federation in {folder}")
    typer.echo(f"down: {bring_down(Folder(folder))} processes ended")


def demo(
    folder: Place = Path("runs/federation-demo"),
    nodes: Annotated[int, typer.Option(min=1, help="Nodes.")] = 3,
    algorithm: Annotated[str, typer.Option("--algorithm", "-a", help="The federated method.")] = "scaffold",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of communication.")] = 3,
) -> None:
    """All in one step: start a federation on the digits that come with Accord, run a method on it, end it."""
    require_flower()
    from accord.federation.folder import Folder, read_state
    from accord.federation.up import bring_down
    from accord.federation.watch import watched as watch

    here = Folder(folder)
    try:
        with watch() as watchman:  # a demonstration leaves nothing behind, however it ends
            up(folder, nodes=nodes)
            for process in state.processes if (state := read_state(here)) else ():
                watchman.over(process)
            settings = for_all(here, load_config(None, [f"algorithm.name={algorithm}", f"rounds={rounds}"]))
            carry_out(here, settings, new_place(here, settings), quiet=False)
    finally:
        if folder.is_dir():
            bring_down(here)
            typer.echo("down: all processes have ended")


def _sites(
    texts: Sequence[str], rest: dict[str, str | None], features: str | None, categorical: str | None
) -> dict[str, dict[str, Any]]:
    """What `[data]` of every site says."""
    said: dict[str, Any] = {name: value for name, value in rest.items() if value is not None}
    for name, text in (("features", features), ("categorical", categorical)):
        said |= {} if text is None else {name: words(text, f"--{name}")}
    sites: dict[str, dict[str, Any]] = {}
    for text in texts:
        site, equals, path = text.partition("=")
        place = Path(os.path.abspath(os.path.expanduser(path)))
        if not equals or not site or not path:
            raise ConfigError(f"--data {text!r}: must be SITE=PATH, as lyon=lyon.csv")
        if site in sites:
            raise ConfigError(f"--data names the site {site!r} twice: give every site a name of its own")
        if not place.exists():
            raise ConfigError(f"--data {text!r}: there is no {place}")
        if place.suffix.lower() in TABLES and "label" not in said:
            raise ConfigError(f"--data {text!r} is a table: say which column is to be predicted, --label COLUMN")
        sites[site] = {"path": str(place), **(said if place.suffix.lower() in TABLES else {})}
    return sites


def _option(folder: Path) -> str:
    return "" if folder == DEFAULT else f" --federation {shlex.quote(str(folder))}"


def for_all(folder: Folder, config: RunConfig) -> RunConfig:
    """A run begins when all who are let in are there, unless it says otherwise; a site's name belongs to its key."""
    admitted = sorted(path.stem for path in folder.admitted.glob("*.pub")) if folder.admitted.is_dir() else []
    section = config.federation
    if admitted and not section.keys:
        section = replace(section, keys=str(folder.admitted))
    if not section.sites and not section.nodes:
        section = replace(section, sites=tuple(admitted))
    return replace(config, federation=section)


def new_place(folder: Folder, config: RunConfig) -> Path:
    """A folder for a new run: the name it was given, or one of method and seed that is not taken."""
    if config.name:
        if (folder.runs / config.name).exists():
            raise ConfigError(
                f"the run folder {folder.runs / config.name} exists already: choose another --name, or go on with it "
                f"by --resume {folder.runs / config.name}"
            )
        return folder.runs / config.name
    base = f"{config.algorithm.name}-s{config.seed}"
    return next(
        place
        for place in (folder.runs / base, *(folder.runs / f"{base}-{n}" for n in range(2, 10000)))
        if not place.exists()
    )


def carry_out(folder: Folder, config: RunConfig, place: Path, quiet: bool) -> None:
    """Run, show how it goes, and print what a simulation prints."""
    from accord.federation.running import read_metrics
    from accord.federation.running import run as start

    def work(observers: Sequence[Observer]) -> Outcome:
        from accord.engine.run import Outcome

        summary = start(folder, config, place, observers)
        return Outcome(None, read_metrics(place), summary, place)

    try:
        report(watched(work, config, quiet), quiet)
    except Stopped as stopped:
        again = f"accord federation run{_option(folder.path)} --resume {shlex.quote(str(place))}"
        raise Stopped(f"go on with: {again}") from stopped.__cause__


COMMANDS: tuple[Callable[..., None], ...] = (up, run)
for command in COMMANDS:
    federation.command(command.__name__)(importing(command))
for command in (status, down, demo, keys, admit, expel, server, node, summary, schema):
    federation.command()(command)
