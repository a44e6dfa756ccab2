"""Who runs which client where. Every file of this package is looked into for executors (see `registry.py`)."""

import importlib
import pkgutil

from accord.executors.registry import (
    AUTO,
    EXECUTORS,
    Choice,
    check_compiles,
    choose,
    make_executor,
    misfit,
)

__all__ = ["AUTO", "EXECUTORS", "Choice", "check_compiles", "choose", "make_executor", "misfit"]

for _found in pkgutil.walk_packages(__path__, __name__ + "."):
    importlib.import_module(_found.name)
