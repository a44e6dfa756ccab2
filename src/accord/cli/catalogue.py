"""`accord list` and `accord explain`: what can be chosen by name, and what it has for settings."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from accord.cli.options import ConfigFile, DataDir, Sets, changes
from accord.cli.width import one_line, wide_console, wrapped
from accord.config import RunConfig, catalog, load_config
from accord.config.cards import describe_setting, explanation, settings_of_entry
from accord.errors import ConfigError, nearest
from accord.settings import REQUIRED, Factory, plain

if TYPE_CHECKING:
    from accord.engine.traffic import Parcel, Traffic

KINDS = {kind + "s": kind for kind in catalog.WHERE}
EXPERIMENTS = "experiments"  # of the papers: no names a configuration knows


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help=", ".join([*KINDS, EXPERIMENTS]) + "."),
    ] = None,
    long: Annotated[bool, typer.Option("--long", "-l", help="With the settings of each.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """What there is to choose from, one line each; `experiments` of the papers only where they are asked for."""
    if kind == EXPERIMENTS:
        _list_experiments(as_json)
        return
    if kind is not None and kind not in KINDS:
        allowed = [*KINDS, EXPERIMENTS]
        raise ConfigError(f"unknown kind {kind!r}.{nearest(kind, allowed)} Allowed: {', '.join(allowed)}.")
    kinds = [kind] if kind is not None else list(KINDS)
    if as_json:
        entries = {k: [entry(k, name, factory) for name, factory in _registry(k).items()] for k in kinds}
        typer.echo(json.dumps(entries if kind is None else entries[kind], indent=2, allow_nan=False))
        return
    if not long:
        for position, each in enumerate(kinds):
            _print_names(each, with_title=kind is None, first=not position)
        return
    console = wide_console()
    for each in kinds:
        table = Table(title=each, show_lines=True, title_justify="left")
        for column in ("name", "what it is", "settings"):
            table.add_column(column)
        for name, factory in _registry(each).items():
            lines = [describe_setting(s) for s in settings_of_entry(KINDS[each], factory).values()]
            table.add_row(Text(name), Text(catalog.summary(KINDS[each], factory)), Text("\n".join(lines)))
        console.print(table)


def _print_names(kinds: str, *, with_title: bool, first: bool) -> None:
    registry = catalog.registry(KINDS[kinds])
    if with_title:
        typer.echo(("" if first else "\n") + kinds)
    wide = max(map(len, registry), default=0)
    for name, factory in registry.items():
        source = registry.source(name)
        whose = f" [{source.package or source.module}]" if source is not None else ""
        indent = "  " if with_title else ""
        typer.echo(one_line(f"{indent}{name:<{wide}}  {catalog.summary(KINDS[kinds], factory)}{whose}"))


def _list_experiments(as_json: bool) -> None:
    from accord.papers.catalogue import overview

    lines = overview()
    if as_json:
        typer.echo(json.dumps([asdict(line) for line in lines], indent=2))
        return
    table = Table(title=EXPERIMENTS, title_justify="left")
    for column in ("id", "paper", "what", "runs", "begun"):
        table.add_column(column, justify="right" if column in ("runs", "begun") else "left")
    for line in lines:
        table.add_row(line.id, line.paper, Text(f"{line.title}: {line.what}"), str(line.runs), str(line.begun))
    wide_console().print(table)


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
            typer.echo(explanation(KINDS[kind], name))
            if kind == "algorithms":
                _print_traffic(load_config(config, changes(sets, data_dir=data_dir, algorithm=name)))
            return
    known = [*_registry("algorithms")]
    raise ConfigError(f"nothing is called {name!r}.{nearest(name, known)} Algorithms: {', '.join(known)}.")


def _print_traffic(config: RunConfig) -> None:
    from accord.engine.traffic import measure_traffic

    parcels = measure_traffic(config)
    if not parcels:
        pooled = "all data is gathered in one place before training."
        alone = "every client is by itself."
        typer.echo(f"\nNo client sends or receives anything: {pooled if parcels.needs_each else alone}")
        return
    words = f"model {config.model.name}, data {parcels.data}, {parcels.clients} clients"
    table = Table(title=f"What one client sends and receives ({words})", title_justify="left")
    for column in ("when", "task", "direction", "tree", "what it is", "bytes"):
        table.add_column(column, justify="right" if column == "bytes" else "left")
    for parcel in parcels:
        tree, size = Text(parcel.tree), f"{parcel.bytes:,}"
        table.add_row(parcel.when, parcel.task, parcel.direction, tree, _kind(parcel), size)
    wide_console().print(table)
    typer.echo(wrapped(_beside(parcels)))


def _kind(parcel: Parcel) -> str:
    if parcel.kind is None:
        return "others' answers" if parcel.passed_on else ""
    return parcel.kind.word if parcel.declared else f"{parcel.kind.word} (not declared)"


def _beside(traffic: Traffic) -> str:
    """What the table does not say."""
    numbers = [f"{', '.join(names)} ({task})" for task, names in traffic.numbers.items() if names]
    said = f"Beside these, numbers: {'; '.join(numbers)}.\n" if numbers else ""
    said += "".join(f"In force: {words}.\n" for words in traffic.filters)
    if traffic.needs_each:
        return f"{said}No secure aggregation: the server {', and '.join(traffic.needs_each)}."
    return f"{said}Secure aggregation would do: weighted sums of the answers are all the server needs."


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
            for s in settings_of_entry(KINDS[kind], factory).values()
        ],
    }


def _registry(kinds: str) -> dict[str, Factory]:
    return dict(catalog.registry(KINDS[kinds]))
