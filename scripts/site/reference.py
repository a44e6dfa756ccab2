"""The reference: every setting from the schema, and pages on which mkdocstrings puts the docstrings."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from itertools import groupby
from types import ModuleType

import methods

import accord
import accord.authoring
from accord.cli.settings import Key, keys

GROUPS = {  # of what `import accord` has: title, names
    "Running": ("run", "resume", "Outcome", "load_config", "from_dict", "RunConfig", "Federation", "ALGORITHMS"),
    "Data": (
        *("from_table", "from_arrays", "from_folder", "from_torch", "from_huggingface", "from_sequences"),
        *("load_dataset", "federate", "describe", "diagnose", "Diagnosis"),
    ),
    "Studies": ("compare", "ComparisonResult", "tune", "TuningResult", "reproduce", "explain"),
    "Models": ("adapt", "load", "Loaded", "predict", "export"),
    "Measuring and watching": ("metric", "Metric", "Observer", "Glance"),
}


def pages() -> Iterator[tuple[str, str]]:
    """Where each lies, and its Markdown."""
    yield "settings.md", settings()
    yield "reference/python.md", python()
    yield "reference/authoring.md", authoring()


def settings() -> str:
    """Every key that `--set` and a configuration file take, section by section."""
    lines = [
        "# All settings",
        "Every key that `--set` and a configuration file take, from the schema itself. In the terminal:"
        " `accord settings lr`. Methods' own settings are on their pages: [methods](methods.md).",
    ]
    found = [key for key in keys() if not key.key.startswith("algorithm.") or key.key == "algorithm.name"]
    for section, some in groupby(sorted(found, key=_section), key=_section):
        title = f"[{section}]" if section else "At the top"
        lines += [f"## {title}", methods.settings_table(list(some))]
    return "\n\n".join(lines) + "\n"


def _section(key: Key) -> str:
    return key.key.rpartition(".")[0]


def python() -> str:
    """`import accord`."""
    told = {name for names in GROUPS.values() for name in names}
    missing = set(accord.__all__) - told - {"__version__"}
    if missing:
        raise ValueError(f"scripts/site/reference.py has no place for {', '.join(sorted(missing))} of accord.__all__")
    homes = {name: home for home, names in accord._HOMES.items() for name in names}
    lines = ["# `import accord`", "All there is; examples and explanations are in [From Python](../python.md)."]
    for title, names in GROUPS.items():
        lines += [f"## {title}", *(entry(accord, name, homes[name], "accord", 3) for name in names)]
    return "\n\n".join(lines) + "\n"


def authoring() -> str:
    """`import accord.authoring as fl`."""
    lines = [
        "# `import accord.authoring as fl`",
        "The 25 names an author of a method needs; how they are used: [an own method](../own_method.md).",
    ]
    imports = [node for node in ast.parse(inspect.getsource(accord.authoring)).body if isinstance(node, ast.ImportFrom)]
    homes = {name.name: str(node.module) for node in imports for name in node.names}
    lines += [entry(accord.authoring, name, homes[name], "fl", 2) for name in accord.authoring.__all__]
    return "\n\n".join(lines) + "\n"


def entry(module: ModuleType, name: str, imported_from: str, shown_as: str, level: int) -> str:
    """A name by the module that defines it, as sources are read and nothing is imported."""
    value = getattr(module, name)
    own = getattr(value, "__name__", None) == name
    home = value.__module__ if own else imported_from
    heading = f"{shown_as}.{name}"
    options = {"heading": heading, "toc_label": name, "heading_level": level}
    return "\n".join([f"::: {home}.{name}", "    options:", *(f"      {key}: {one}" for key, one in options.items())])
