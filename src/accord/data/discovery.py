"""Packages whose modules register themselves: a new file is found without being named anywhere."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable


def import_modules(package: str, folders: Iterable[str]) -> None:
    """Import every module of a package in the order of their names; call with its `__name__` and `__path__`."""
    for module in pkgutil.iter_modules(folders):
        importlib.import_module(f"{package}.{module.name}")
