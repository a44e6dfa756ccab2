"""What can be chosen by name, and where it is registered. Imported only when asked: most of it is slow."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from accord.settings import Factory

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
    "optimizer": ("accord.core.optim", "OPTIMIZERS"),
    "schedule": ("accord.core.optim", "SCHEDULES"),
    "executor": ("accord.executors", "EXECUTORS"),
}


def registry(kind: str) -> Mapping[str, Any]:
    """The factories of one kind: one of those in `WHERE`."""
    module, name = WHERE[kind]
    entries: Mapping[str, Any] = getattr(importlib.import_module(module), name)
    return entries


def card(kind: str, factory: Factory) -> str:
    """The full explanation: an algorithm's is its module's docstring; the others are explained one by one."""
    if kind == "algorithm":
        module = inspect.getmodule(inspect.unwrap(factory))
        text = inspect.getdoc(module) if module is not None else None
    else:
        text = inspect.getdoc(factory)
    return text or ""


def summary(kind: str, factory: Factory) -> str:
    """The first line of what the factory says of itself, else of its card."""
    return ((inspect.getdoc(factory) or card(kind, factory)).splitlines() or [""])[0]
