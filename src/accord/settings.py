"""Bounds and search ranges written beside a setting's default, and the registry of things chosen by name.

A setting is a dataclass field or a factory's keyword argument with an annotation such as
`mu: Annotated[float, AtLeast(0), Search(1e-3, 1, log=True), "weight of the proximal term"] = 0.01`.
`accord.config` reads the annotations to check values and to explain them; nothing else looks at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from accord.errors import ConfigError, nearest

T = TypeVar("T")


@dataclass(frozen=True)
class Range:
    """An interval a number must lie in; `above`/`below` exclude their end, `low`/`high` include it."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        words = [
            f"{word} {end:g}"
            for word, end in (
                ("at least", self.low),
                ("above", self.above),
                ("at most", self.high),
                ("below", self.below),
            )
            if end is not None
        ]
        return " and ".join(words)


def AtLeast(low: float) -> Range:  # noqa: N802 - reads as a type inside Annotated[...]
    """A number of `low` or more."""
    return Range(low=low)


POSITIVE = Range(above=0)
NOT_NEGATIVE = Range(low=0)
FRACTION = Range(low=0, high=1)
PROPER_FRACTION = Range(low=0, below=1)


@dataclass(frozen=True)
class Search:
    """Where `accord compare --tune` looks: an interval (optionally on a log scale) or a list of choices."""

    low: float | None = None
    high: float | None = None
    log: bool = False
    choices: tuple[object, ...] = ()


class Registry(Mapping[str, T], Generic[T]):
    """Names to factories, in the order they were added; an unknown name is an error with the nearest match."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def add(self, name: str) -> Callable[[T], T]:
        """Decorator that registers a factory under `name`."""

        def register(entry: T) -> T:
            if name in self._entries:
                raise ConfigError(f"the {self.kind} {name!r} is registered already; choose another name")
            self._entries[name] = entry
            return entry

        return register

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            allowed = ", ".join(self._entries)
            raise ConfigError(f"unknown {self.kind} {name!r}.{nearest(name, self._entries)} Allowed: {allowed}.")
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
