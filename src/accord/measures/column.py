"""A column of a table: where its number lies in a summary, how it is written, and which values are the better ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Better = Literal["higher", "lower"]


def percent(value: float) -> str:
    """A share as a percentage.

    >>> percent(0.12345)
    '12.35'
    """
    return f"{100 * value:.2f}"


def number(value: float) -> str:
    """Four digits.

    >>> number(1234.5678), number(0.00012345)
    ('1235', '0.0001235')
    """
    return f"{value:.4g}"


@dataclass(frozen=True)
class Column:
    """One number of a run's summary."""

    key: str
    title: str
    path: tuple[str, ...]  # in summary.json
    write: Callable[[float], str] = percent
    better: Better | None = "higher"
    compared: bool = True  # False: shown at the end of a single run, not in tables of several

    def find(self, summary: Mapping[str, Any]) -> Any:
        """The number, or None where it was not measured."""
        value: Any = summary
        for key in self.path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value
