"""Bounds and search ranges written beside a setting's default.

A setting is a dataclass field or a factory's keyword argument with an annotation such as
`mu: Annotated[float, AtLeast(0), Search(1e-3, 1, log=True), "weight of the proximal term"] = 0.01`.
`accord.settings.schema` reads the annotations; whoever checks, explains or searches a setting asks there.
"""

from __future__ import annotations

from dataclasses import dataclass


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


@dataclass(frozen=True)
class Named:
    """The value is a name out of the registry of this `kind`, or one of the words in `also`."""

    kind: str
    also: tuple[str, ...] = ()
