"""What can be chosen by name, and where it is registered. Imported only when asked: most of it is slow."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from accord.config.sections import Chosen, Gathered
from accord.settings import Factory, Registry, Source, is_section, settings_of

if TYPE_CHECKING:
    from accord.config.tree import RunConfig

WHERE = {
    "algorithm": ("accord.core.methods", "ALGORITHMS"),
    "task": ("accord.problems", "PROBLEMS"),
    "dataset": ("accord.data.public", "DATASETS"),
    "partition": ("accord.data.partitions", "PARTITIONS"),
    "transform": ("accord.data.transforms", "TRANSFORMS"),
    "model": ("accord.models", "MODELS"),
    "measure": ("accord.measures", "MEASURES"),
    "initialisation": ("accord.models.initialisation", "INITIALISATIONS"),
    "sampler": ("accord.sampling", "SAMPLERS"),
    "distribution": ("accord.pace", "DISTRIBUTIONS"),
    "presence": ("accord.pace", "PRESENCES"),
    "optimizer": ("accord.core.optim", "OPTIMIZERS"),
    "schedule": ("accord.core.optim", "SCHEDULES"),
    "attack": ("accord.attacks", "ATTACKS"),
    "protection": ("accord.filters", "PROTECTIONS"),
    "executor": ("accord.executors", "EXECUTORS"),
}


def registry(kind: str) -> Registry[Any]:
    """The factories of one kind: one of those in `WHERE`."""
    module, name = WHERE[kind]
    entries: Registry[Any] = getattr(importlib.import_module(module), name)
    return entries


def sources(config: RunConfig) -> dict[str, Source]:
    """The plugins a configuration needs to be read, by `kind name`: those of what it chooses, and of its measures."""
    found = {f"{kind} {name}": registry(kind).source(name) for kind, name in _choices(config)}
    return {key: source for key, source in found.items() if source is not None}


def _choices(section: Any) -> Iterator[tuple[str, str]]:
    """Every kind and name that is chosen in a configuration."""
    kind = type(section)
    if issubclass(kind, Chosen):
        yield kind.kind, section.name
    elif issubclass(kind, Gathered):
        for name, entry in registry(kind.kind).items():
            if entry.setting is not None and entry.setting.name in section.options:
                yield kind.kind, name
    for name, setting in settings_of(type(section)).items():
        value = getattr(section, name)
        if is_section(setting.type):
            yield from _choices(value)
        elif setting.named is not None and value not in setting.named.also:
            yield setting.named.kind, value


def card(kind: str, factory: Factory) -> str:
    """The full explanation: an algorithm's is its module's docstring; the others are explained one by one.

    So is an algorithm made in a notebook, whose module is IPython's and says nothing of it.
    """
    if kind == "algorithm" and inspect.unwrap(factory).__module__ != "__main__":
        module = inspect.getmodule(inspect.unwrap(factory))
        text = inspect.getdoc(module) if module is not None else None
    else:
        text = inspect.getdoc(factory)
    return text or ""


def summary(kind: str, factory: Factory) -> str:
    """The first line of what the factory says of itself, else of its card."""
    return ((inspect.getdoc(factory) or card(kind, factory)).splitlines() or [""])[0]
