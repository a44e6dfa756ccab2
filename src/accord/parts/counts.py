"""Counts given from Python are held to the same rules as those from a configuration file."""

from __future__ import annotations

from accord.errors import ConfigError
from accord.parts.bounds import within
from accord.settings import Range


def whole(bounds: Range, **values: int) -> None:
    """Raise ConfigError unless every value is a whole number within `bounds`."""
    within(bounds, **values)
    for name, value in values.items():
        if not isinstance(value, int):
            raise ConfigError(f"{name} = {value!r}: must be a whole number, {bounds}")
