"""The pieces of a federation on several machines: keys at the server, the server itself, a node at its owner's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accord.cli.guard import Stopped
from accord.cli.lists import words
from accord.errors import ConfigError
from accord.federation.installed import require_flower

ServerFolder = Annotated[Path, typer.Argument(metavar="[FOLDER]", help="The server's folder.")]
DEFAULT = Path("federation")


def keys(
    folder: ServerFolder = DEFAULT,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="How nodes reach the server: a name or an IP address; may be repeated."),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(metavar="SITE", help="Make a node's key instead, on the node's machine: FOLDER/node.key."),
    ] = None,
) -> None:
    """Make the secrets of a federation on several machines; nothing is ever written over.

    At the server: an authority and the server's certificate, good for its --host names. ca.pem is for everybody, ca.key
    and server.key for nobody else. At each site: `accord federation keys FOLDER --node SITE` makes the node's own key;
    its owner sends node.key.pub to the server, where `accord federation admit` lets it in. node.key never travels.
    """
    require_flower()
    from accord.federation.certificates import make_node_key, private_folder
    from accord.federation.folder import Folder
    from accord.federation.sites import KEY, make_server

    if node is not None:
        if host:
            raise ConfigError("--host belongs to the server's keys, --node to a node's: make them apart")
        Folder(folder).site(node)
        private_folder(folder)
        public = make_node_key(folder / KEY)
        typer.echo(f"{folder / KEY} is this node's key: nobody else may have it")
        typer.echo(f"{public} goes to the server: accord federation admit {node} {public.name}")
        return
    here = Folder(folder)
    if here.certificates.server.exists():
        raise ConfigError(f"{here.certificates.server} exists already and is not written over: choose another folder")
    make_server(here, host or [])
    typer.echo(f"{here.certificates.authority} goes to every node")
    typer.echo(f"{here.certificates.authority_key} signs certificates: keep it away from the network")


def admit(
    site: Annotated[str, typer.Argument(help="The site's name.")],
    key: Annotated[Path, typer.Argument(help="The public key its owner sent, node.key.pub.")],
    folder: Annotated[
        Path, typer.Option("--federation", "-f", metavar="FOLDER", help="The server's folder.")
    ] = DEFAULT,
) -> None:
    """Let a node in, by its public key: from now on if the server runs, else from its next start."""
    require_flower()
    from accord.federation import superlink
    from accord.federation.control import register
    from accord.federation.folder import Folder, read_state
    from accord.federation.sites import admit as let_in

    here = Folder(folder)
    if not here.certificates.server.exists():
        raise ConfigError(f"there is no server in {folder}: accord federation keys {folder} --host NAME")
    let_in(here, site, key)
    state = read_state(here)
    if state is not None and superlink.answers(state, here.certificates.authority):
        register(here.home, [here.admitted / f"{site}.pub"])
        typer.echo(f"{site} is let in")
    else:
        typer.echo(f"{site} is let in from the server's next start on")


def expel(
    site: Annotated[str, typer.Argument(help="The site's name.")],
    folder: Annotated[
        Path, typer.Option("--federation", "-f", metavar="FOLDER", help="The server's folder.")
    ] = DEFAULT,
) -> None:
    """Shut a site out: its key is refused from now on, for good; a run under way goes on without it.

    Who has left, or has lost the key, comes back with a new key only: `accord federation keys`, then `admit`.
    """
    require_flower()
    from accord.federation.expelling import expel as shut_out
    from accord.federation.folder import Folder

    now = shut_out(Folder(folder), site)
    typer.echo(f"{site} is shut out" + ("" if now else "; the SuperLink does not run, and will know when it starts"))


def server(
    folder: ServerFolder = DEFAULT,
    host: Annotated[str, typer.Option(help="The address to listen at; 0.0.0.0: all of this machine's.")] = "0.0.0.0",  # noqa: S104
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port nodes come to.")] = 9092,
) -> None:
    """Start the server of a federation on several machines, in the background: `accord federation down` ends it.

    Nodes come by TLS and with a key that was let in; operators (`accord federation run`) are answered on this machine
    alone, as Flower would ask them for nothing.
    """
    require_flower()
    from accord.federation.folder import Folder
    from accord.federation.up import bring_up

    here = Folder(folder)
    if not here.certificates.server.exists():
        raise ConfigError(f"there are no certificates in {here.server}: accord federation keys {folder} --host NAME")
    state = bring_up(here, typer.echo, host, port, with_nodes=False)
    typer.echo(f"up at {state.host}:{state.port}, log in {here.log}")


def node(
    file: Annotated[Path, typer.Argument(metavar="NODE.toml", help="The owner's file.")],
    check: Annotated[
        bool, typer.Option("--check", help="Only check file, key and data, and say what is agreed to.")
    ] = False,
) -> None:
    """Start one node as its owner, until Ctrl-C.

    Checks the file, the key and the data first, and says what the node agrees to. It runs the client app of this
    installation whatever the server sends: no code comes over the network.
    """
    require_flower()
    from accord.federation.attended import attend
    from accord.federation.node_file import agreement, read_node

    known = read_node(file)
    for line in agreement(known):
        typer.echo(line)
    if not check:
        try:
            attend(known, typer.echo)
        except KeyboardInterrupt as stop:
            raise Stopped("the node has ended; the same command starts it again") from stop


def summary(
    table: Annotated[Path, typer.Argument(help="The site's own CSV or Parquet file.")],
    label: Annotated[str, typer.Option(help="The column to be predicted.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write it.")] = Path("summary.json"),
    features: Annotated[str | None, typer.Option(metavar="A,B", help="The columns to learn from; all others.")] = None,
    categorical: Annotated[str | None, typer.Option(metavar="A,B", help="Columns of words or codes.")] = None,
    missing: Annotated[str, typer.Option(help="Missing values: error, mean or drop.")] = "error",
    task: Annotated[str, typer.Option(help="What is learned: auto, classification or regression.")] = "auto",
) -> None:
    """Summarise a site's table for the schema all sites prepare their rows by; its owner reads it, then sends it.

    It holds the columns' names, the values of categories, mean and variance of numbers, how many there are, and the
    classes; no row leaves the site.
    """
    from accord.data.own.schema import write_json
    from accord.data.own.summaries import summarise

    chosen = None if features is None else words(features, "--features")
    coded = [] if categorical is None else words(categorical, "--categorical")
    given = {"features": chosen, "categorical": coded, "missing": missing, "task": task}
    write_json(out, summarise(table, label, **given))  # type: ignore[arg-type]
    typer.echo(f"{out}: read it, then send it to the server, where `accord federation schema` puts all together")


def schema(
    summaries: Annotated[list[Path], typer.Argument(help="The sites' summaries.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write it.")] = Path("schema.json"),
) -> None:
    """Make a schema of all sites' summaries: the same columns, classes and moments for everybody."""
    from accord.data.own.schema import Summary, agree, write_json

    made = agree({path.stem: Summary.read(path) for path in summaries})
    write_json(out, made)
    columns = ", ".join(column.name for column in made.inputs.columns)
    typer.echo(f"{out} predicts {made.label} from {columns}; it goes to every site: schema = {out.name!r} in [data]")
