"""Numbers given from Python are held to the same bounds as those from a configuration file."""

from __future__ import annotations

import math
from collections.abc import Sequence

from accord.errors import ConfigError, nearest
from accord.settings import Range


def one_of(allowed: Sequence[str], **values: str) -> None:
    """Raise ConfigError unless every value is an allowed word."""
    for name, value in values.items():
        if value not in allowed:
            raise ConfigError(f"{name} = {value!r}: must be one of {', '.join(allowed)}.{nearest(str(value), allowed)}")


def whole(bounds: Range, **values: int) -> None:
    """Raise ConfigError unless every value is a whole number within `bounds`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value not in bounds:
            raise ConfigError(f"{name} = {value!r}: must be a whole number, {bounds}")


def within(bounds: Range, **values: float) -> None:
    """Raise ConfigError unless every value is a finite number within `bounds`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"{name} = {value!r}: must be a finite number, {bounds}")
        if value not in bounds:
            raise ConfigError(f"{name} = {value!r}: must be {bounds}")
