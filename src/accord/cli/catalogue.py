"""`accord list` and `accord explain`: what can be chosen by name, and what it has for settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from accord.cli.options import ConfigFile, DataDir, Sets, changes
from accord.config import RunConfig, catalog, load_config
from accord.config.sections import Chosen, Gathered, own_settings
from accord.config.toml import literal
from accord.errors import ConfigError, nearest
from accord.settings import REQUIRED, Setting, is_section, plain, settings_of


@dataclass(frozen=True)
class Kind:
    """A registry, and the section of the configuration whose keys its entries' settings are."""

    name: str
    prefix: str  # of the keys
    section: type

    @property
    def entries(self) -> Mapping[str, Any]:
        """By name."""
        return catalog.registry(self.name)

    def settings(self, entry: Any) -> dict[str, Setting]:
        """An entry's own: its factory's, or the one it declares; one that is named by a key has none."""
        if issubclass(self.section, Chosen):
            return own_settings(self.section, entry)
        setting: Setting | None = getattr(entry, "setting", None)
        return {} if setting is None else {setting.name: setting}


def _kinds(section: type, prefix: str = "") -> Iterator[Kind]:
    """Whatever can be chosen or switched by name somewhere in the configuration."""
    if issubclass(section, (Chosen, Gathered)):
        yield Kind(section.kind, prefix, section)
    for name, setting in settings_of(section).items():
        if is_section(setting.type):
            yield from _kinds(setting.type, f"{name}.")
        elif setting.named is not None:
            yield Kind(setting.named.kind, prefix, section)


FIRST = ("algorithm", "dataset", "partition", "transform", "model")  # what readers look for most
KINDS = {
    kind.name + "s": kind for kind in sorted(_kinds(RunConfig), key=lambda kind: (*FIRST, kind.name).index(kind.name))
}


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help=", ".join(KINDS) + "."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """What there is to choose from, and its settings."""
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"unknown kind {kind!r}.{nearest(kind, KINDS)} Allowed: {', '.join(KINDS)}.")
    kinds = {kind: KINDS[kind]} if kind is not None else KINDS
    if as_json:
        found = {title: [described(each, name) for name in each.entries] for title, each in kinds.items()}
        typer.echo(json.dumps(found if kind is None else found[kind], indent=2))
        return
    console = Console()
    for title, each in kinds.items():
        table = Table(title=title, show_lines=True, title_justify="left")
        for column in ("name", "what it is", "settings"):
            table.add_column(column)
        for name, entry in each.entries.items():
            lines = [describe_setting(s) for s in each.settings(entry).values()]
            table.add_row(Text(name), Text(catalog.summary(each.name, entry)), Text("\n".join(lines)))
        console.print(table)


def explain(
    name: Annotated[str, typer.Argument(help="An algorithm, or anything else that has a name.")],
    config: ConfigFile = None,
    sets: Sets = None,
    data_dir: DataDir = None,
) -> None:
    """The card of an algorithm: paper, equations, settings, and what leaves a client for the chosen model."""
    for kind in KINDS.values():
        if name in kind.entries:
            typer.echo(catalog.card(kind.name, kind.entries[name]))
            lines = [describe_setting(s) for s in kind.settings(kind.entries[name]).values()]
            typer.echo("\nSettings:" if lines else "\nIt has no settings of its own.")
            for line in lines:
                typer.echo(f"  {kind.prefix}{line}")
            if kind.name == "algorithm":
                _print_traffic(load_config(config, changes(sets, data_dir=data_dir, algorithm=name)))
            return
    known = list(KINDS["algorithms"].entries)
    raise ConfigError(f"nothing is called {name!r}.{nearest(name, known)} Algorithms: {', '.join(known)}.")


def _print_traffic(config: RunConfig) -> None:
    from accord.engine.traffic import measure_traffic

    parcels = measure_traffic(config)
    words = f"model {config.model.name}, data {config.data.name}, {config.partition.clients} clients"
    table = Table(title=f"What one client sends and receives ({words})", title_justify="left")
    for column in ("when", "task", "direction", "tree", "bytes"):
        table.add_column(column, justify="right" if column == "bytes" else "left")
    for parcel in parcels:
        when = "once" if parcel.phase == "start" else "every round"
        table.add_row(when, parcel.task, parcel.direction, Text(parcel.tree), f"{parcel.bytes:,}")
    Console().print(table)


def described(kind: Kind, name: str) -> dict[str, Any]:
    """One name with its settings, as plain values."""
    return {
        "name": name,
        "summary": catalog.summary(kind.name, kind.entries[name]),
        "settings": [
            {
                "name": s.name,
                "default": None if s.default is REQUIRED else plain(s.default),
                "required": s.default is REQUIRED,
                "allowed": s.allowed,
                "doc": s.doc,
                "search": None if s.search is None else asdict(s.search),
            }
            for s in kind.settings(kind.entries[name]).values()
        ],
    }


def describe_setting(setting: Setting) -> str:
    """`mu = 0.01: weight of the proximal term (a number, at least 0)`."""
    default = "" if setting.default is REQUIRED else f" = {literal(setting.default)}"
    needed = ", required" if setting.default is REQUIRED else ""
    return f"{setting.name}{default}: {setting.doc} ({setting.allowed}{needed})"
