"""`accord list` and `accord explain`: what can be chosen by name, and what it has for settings."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from accord.cli.options import ConfigFile, DataDir, Sets, changes
from accord.config import RunConfig, catalog, load_config
from accord.config.sections import own_settings
from accord.config.toml import literal
from accord.config.tree import AlgorithmConfig, DataConfig, ModelConfig, PartitionConfig, TransformConfig
from accord.errors import ConfigError, nearest
from accord.settings import REQUIRED, Factory, Setting, plain

KINDS = {kind + "s": kind for kind in catalog.WHERE}
# Sections that hold the settings of what they name; of other kinds an entry may declare a setting of its own.
SECTIONS = {
    section.kind: section for section in (AlgorithmConfig, DataConfig, PartitionConfig, TransformConfig, ModelConfig)
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
    kinds = [kind] if kind is not None else list(KINDS)
    if as_json:
        entries = {k: [entry(k, name, factory) for name, factory in _registry(k).items()] for k in kinds}
        typer.echo(json.dumps(entries if kind is None else entries[kind], indent=2, allow_nan=False))
        return
    console = Console()
    for each in kinds:
        table = Table(title=each, show_lines=True, title_justify="left")
        for column in ("name", "what it is", "settings"):
            table.add_column(column)
        for name, factory in _registry(each).items():
            lines = [describe_setting(s) for s in _settings(each, factory).values()]
            table.add_row(Text(name), Text(catalog.summary(KINDS[each], factory)), Text("\n".join(lines)))
        console.print(table)


def explain(
    name: Annotated[str, typer.Argument(help="An algorithm, or anything else that has a name.")],
    config: ConfigFile = None,
    sets: Sets = None,
    data_dir: DataDir = None,
) -> None:
    """The card of an algorithm: paper, equations, settings, and what leaves a client for the chosen model."""
    for kind in KINDS:
        registry = _registry(kind)
        if name in registry:
            typer.echo(catalog.card(KINDS[kind], registry[name]))
            lines = [describe_setting(s) for s in _settings(kind, registry[name]).values()]
            section = {"dataset": "data", "measure": "evaluate"}.get(KINDS[kind], KINDS[kind])
            typer.echo("\nSettings:" if lines else "\nIt has no settings of its own.")
            for line in lines:
                typer.echo(f"  {section}.{line}")
            if kind == "algorithms":
                _print_traffic(load_config(config, changes(sets, data_dir=data_dir, algorithm=name)))
            return
    known = [*_registry("algorithms")]
    raise ConfigError(f"nothing is called {name!r}.{nearest(name, known)} Algorithms: {', '.join(known)}.")


def _print_traffic(config: RunConfig) -> None:
    from accord.engine.traffic import measure_traffic

    parcels = measure_traffic(config)
    if not parcels:
        typer.echo("\nNo client sends or receives anything: all data is gathered in one place before training.")
        return
    words = f"model {config.model.name}, data {parcels.data}, {parcels.clients} clients"
    table = Table(title=f"What one client sends and receives ({words})", title_justify="left")
    for column in ("when", "task", "direction", "tree", "bytes"):
        table.add_column(column, justify="right" if column == "bytes" else "left")
    for parcel in parcels:
        when = "once" if parcel.phase == "start" else "every round"
        table.add_row(when, parcel.task, parcel.direction, Text(parcel.tree), f"{parcel.bytes:,}")
    Console().print(table)


def entry(kind: str, name: str, factory: Factory) -> dict[str, Any]:
    """One name with its settings, as plain values."""
    return {
        "name": name,
        "summary": catalog.summary(KINDS[kind], factory),
        "settings": [
            {
                "name": s.name,
                "default": None if s.default is REQUIRED else plain(s.default),
                "required": s.default is REQUIRED,
                "allowed": s.allowed,
                "doc": s.doc,
                "search": None if s.search is None else asdict(s.search),
            }
            for s in _settings(kind, factory).values()
        ],
    }


def describe_setting(setting: Setting) -> str:
    """`mu = 0.01: weight of the proximal term (a number, at least 0)`."""
    default = "" if setting.default is REQUIRED else f" = {literal(setting.default)}"
    needed = ", required" if setting.default is REQUIRED else ""
    return f"{setting.name}{default}: {setting.doc} ({setting.allowed}{needed})"


def _registry(kinds: str) -> dict[str, Factory]:
    return dict(catalog.registry(KINDS[kinds]))


def _settings(kinds: str, factory: Factory) -> dict[str, Setting]:
    section = SECTIONS.get(KINDS[kinds])
    if section is not None:
        return own_settings(section, factory)
    setting: Setting | None = getattr(factory, "setting", None)
    return {} if setting is None else {setting.name: setting}
