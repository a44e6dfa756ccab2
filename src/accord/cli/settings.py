"""`accord settings`: every key that `--set` and a configuration file take."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from accord.cli.width import one_line, wrapped
from accord.config import RunConfig, catalog
from accord.config.sections import Chosen, Gathered, declared
from accord.config.toml import literal
from accord.errors import ConfigError
from accord.settings import REQUIRED, Setting, is_section, plain, settings_of


@dataclass(frozen=True)
class Key:
    """One setting, and whose it is where only some names of its section have it."""

    key: str
    setting: Setting
    names: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        """`algorithm.mu = 0.01 [fedprox]`."""
        default = "" if self.setting.default is REQUIRED else f" = {literal(self.setting.default)}"
        return f"{self.key}{default}" + (f" [{', '.join(self.names)}]" if self.names else "")

    @property
    def allowed(self) -> str:
        """Type, bounds, and the names it may have."""
        named = self.setting.named
        if named is None:
            return self.setting.allowed + (", required" if self.setting.default is REQUIRED else "")
        return "one of " + ", ".join([*named.also, *catalog.registry(named.kind)])

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        required = self.setting.default is REQUIRED
        return {
            "key": self.key,
            "default": None if required else plain(self.setting.default),
            "required": required,
            "allowed": self.allowed,
            "doc": self.setting.doc,
            "names": list(self.names),
        }


def settings(
    pattern: Annotated[
        str | None,
        typer.Argument(help="Part of a key, a name or a word of the meaning, such as lr; * stands for anything."),
    ] = None,
    long: Annotated[bool, typer.Option("--long", "-l", help="With types, bounds and full text.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Every setting with its default and meaning; those in brackets belong to the names there."""
    found = [key for key in keys() if pattern is None or fits(key, pattern)]
    if not found:
        raise ConfigError(f"no setting has {pattern!r} in its key or meaning; `accord settings` prints all")
    if as_json:
        typer.echo(json.dumps([key.as_json() for key in found], indent=2, allow_nan=False))
        return
    for key in found:
        if long:
            typer.echo(wrapped(f"{key.head}: {key.setting.doc} ({key.allowed})", "    "))
        else:
            typer.echo(one_line(f"{key.head}  {key.setting.doc}"))


def keys() -> list[Key]:
    """All of them, section by section; one that several names share in every respect is there once."""
    merged: dict[tuple[str, str], Key] = {}
    for key in _keys(RunConfig, ""):
        identity = key.key, f"{key.setting.default!r} {key.setting.doc}"
        before = merged.get(identity)
        merged[identity] = key if before is None else Key(key.key, key.setting, (*before.names, *key.names))
    return list(merged.values())


def _keys(section: type, prefix: str) -> Iterator[Key]:
    below = []
    for name, setting in settings_of(section).items():
        if is_section(setting.type):
            below.append((setting.type, f"{prefix}{name}."))
        else:
            yield Key(prefix + name, setting)
    if issubclass(section, Chosen):
        for chosen in catalog.registry(section.kind):
            for setting in declared(section, catalog.registry, chosen).values():
                yield Key(prefix + setting.name, setting, (chosen,))
    elif issubclass(section, Gathered):
        for setting in declared(section, catalog.registry).values():
            yield Key(prefix + setting.name, setting)
    for kind, place in below:
        yield from _keys(kind, place)


def fits(key: Key, pattern: str) -> bool:
    """Whether the pattern is in its key, is one of its names, or begins a word of its meaning."""
    wanted = pattern.lower()
    words = re.findall(r"[\w.]+", key.setting.doc.lower())
    begins = any(fnmatch.fnmatchcase(word, f"{wanted}*") for word in words)
    return fnmatch.fnmatchcase(key.key.lower(), f"*{wanted}*") or wanted in key.names or begins
