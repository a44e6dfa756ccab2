"""Lists and whole numbers that come from a caller, each refused in a sentence that names it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from accord.errors import ConfigError


def several(values: Iterable[Any], what: str) -> tuple[Any, ...]:
    """The values of a list; one text is no list, though Python would take its letters."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ConfigError(f"{what}: give a list, not {values!r}")
    return tuple(values)


def whole(value: object, what: str) -> int:
    """A whole number of any kind, NumPy's among them."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise ConfigError(f"{what}: must be a whole number, not {value!r}")


def check_texts(values: Sequence[object], what: str) -> None:
    """Refuse what is no text."""
    for value in values:
        if not isinstance(value, str):
            raise ConfigError(f"{what}: must be texts, and {value!r} is none")


def check_distinct(values: Sequence[object], what: str) -> None:
    """Refuse an empty list, and one that names something twice."""
    if not values:
        raise ConfigError(f"{what}: name at least one")
    twice = [value for value in dict.fromkeys(values) if values.count(value) > 1]
    if twice:
        raise ConfigError(f"{what}: {', '.join(map(repr, twice))} is there more than once; name each one once")
