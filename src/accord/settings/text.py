"""Values written as text, as on the command line."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEEPEST = 20  # brackets within brackets; no setting has more than two


def parse_value(text: str) -> object:
    """TOML's idea of the text, else a number such as `.5`, a boolean, a list without quotes, or a string.

    >>> [parse_value(t) for t in ("1e-3", ".5", "True", "fedprox", '["a", 2]', "[a, 2]")]
    [0.001, 0.5, True, 'fedprox', ['a', 2], ['a', 2]]
    """
    if text.count("[") + text.count("{") > DEEPEST:
        return text
    try:
        read: dict[str, Any] = tomllib.loads(f"value = {text}")
        if set(read) == {"value"}:  # a line break in the text could have brought further keys
            return read["value"]
    except (ValueError, RecursionError):
        pass
    try:
        return float(text)
    except ValueError:
        pass
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.startswith("[") and text.endswith("]"):
        return [parse_value(item.strip()) for item in text[1:-1].split(",") if item.strip()]
    return text
