"""Entries that other packages bring: found by their entry points, or imported by name (`--import my_module`).

A package that declares, say,

    [project.entry-points."accord.algorithms"]
    fedmine = "my_package.methods"

has its module imported when the registry of algorithms is first looked into; the module registers what it has with the
decorators this package uses itself. There is a group for every kind that can be chosen by name. A plugin that cannot be
imported, or takes a name that is taken, is named in a warning and costs nobody but those who ask for it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from accord.errors import ConfigError

HOME = "accord"  # the package whose own entries are no plugins
IMPORTED: list[str] = []  # by `import_modules`, in order: a process that is started for a run imports them too


class PluginWarning(UserWarning):
    """A plugin cannot be used."""


@dataclass(frozen=True)
class Source:
    """Where an entry comes from; a module that belongs to no installed package has no `package` and no `version`."""

    module: str
    package: str = ""
    version: str = ""

    @property
    def words(self) -> str:
        """For people."""
        return f"module {self.module}" + (f" (package {self.package} {self.version})" if self.package else "")


def group(kind: str) -> str:
    """The entry points' group of a kind."""
    return f"{HOME}.{kind}s"


def load(kind: str, registered: Callable[[str], bool]) -> None:
    """Import all plugins of a kind; what is wrong with one is said in a warning of one sentence."""
    problems = []
    for point in _points(tuple(sys.path)):
        if point.group != group(kind):
            continue
        whose = f"the plugin {point.name!r} of {_package(point)} ({point.value})"
        try:
            point.load()
        except (Exception, SystemExit) as error:
            why = str(error).strip().splitlines()
            problems.append(f"{whose} cannot be used: {type(error).__name__}: {why[0] if why else 'no reason given'}")
            continue
        busy = getattr(getattr(sys.modules.get(point.module), "__spec__", None), "_initializing", False)
        if not registered(point.name) and not busy:  # one that is being imported may still come to it
            problems.append(f"{whose} registers no {kind} of that name: its module must do so when it is imported")
    for problem in problems:
        warnings.warn(problem, PluginWarning, stacklevel=2)


def import_modules(names: Sequence[str]) -> None:
    """Import modules for what they register; also from the working folder, and a file by its path."""
    for name in names:
        path = Path(name)
        is_file = name.endswith(".py")
        for place in (str(path.parent.resolve()),) if is_file else (os.getcwd(),):
            if place not in sys.path:
                sys.path.append(place)
        module = path.stem if is_file else name
        try:
            importlib.import_module(module)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"--import {name}: {type(error).__name__}: {error}. Name a module that Python finds here or among its "
                "packages, or a file that ends in .py"
            ) from error
        if module not in IMPORTED:
            IMPORTED.append(module)


def source_of(entry: Any) -> Source | None:
    """Whose an entry is; None for this package's own."""
    module = _module(entry)
    top = module.partition(".")[0]
    if top == HOME:
        return None
    for point in _points(tuple(sys.path)):
        if point.module.partition(".")[0] == top and point.dist is not None:
            return Source(module, point.dist.name, point.dist.version)
    for package in metadata.packages_distributions().get(top, ()):
        return Source(module, package, metadata.version(package))
    return Source(module)


def _module(entry: Any) -> str:
    """Where it was written; a measure made of a function is where the function is."""
    written = inspect.unwrap(getattr(entry, "function", entry))
    while isinstance(written, functools.partial):
        written = inspect.unwrap(written.func)
    return str(getattr(written, "__module__", None) or type(written).__module__)


def _package(point: metadata.EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown package"


@functools.cache  # looks into every installed package
def _points(path: tuple[str, ...]) -> tuple[metadata.EntryPoint, ...]:
    """All entry points for this package, as the modules' search path has them; of a package that is there twice, those
    of the copy Python would import.
    """
    first = {str(package.metadata["Name"]).lower(): package for package in reversed([*metadata.distributions()])}
    points = [point for package in first.values() for point in package.entry_points]
    mine = [point for point in points if point.group.startswith(f"{HOME}.")]
    return tuple(sorted(mine, key=lambda point: (point.group, point.name, point.value)))
