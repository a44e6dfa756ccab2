"""A column of a table: where its number lies in a summary, how it is written, and which values are the better ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from accord.problems import headlines

Better = Literal["higher", "lower"]
Record = dict[str, Any]


def percent(value: float) -> str:
    """A share as a percentage.

    >>> percent(0.12345)
    '12.35'
    """
    return f"{100 * value:.2f}"


def number(value: float) -> str:
    """Four digits.

    >>> number(1234.5678), number(0.00012346)
    ('1235', '0.0001235')
    """
    return f"{value:.4g}"


WRITERS = {"percent": percent, "number": number}


@dataclass(frozen=True)
class Column:
    """One number of a run's summary."""

    key: str
    title: str
    path: tuple[str, ...]  # in summary.json
    write: Callable[[float], str] = percent
    better: Better | None = "higher"
    compared: bool = True  # False: shown at the end of a single run, not in tables of several
    beside: str = ""  # in tables of several it stands before the column of this key, and nowhere without it

    def find(self, summary: Mapping[str, Any]) -> Any:
        """The number, or None where it was not measured."""
        value: Any = summary
        for key in self.path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def as_record(self) -> Record:
        """For a summary, so that its tables have it also where the measure is not known; not for writers of its own."""
        written = next((name for name, write in WRITERS.items() if write is self.write), "")
        return {**asdict(self), "path": list(self.path), "write": written}


def column_of(record: Mapping[str, Any]) -> Column | None:
    """What `as_record` gave; None where a summary, which may come from elsewhere, says something else."""
    try:
        column = Column(**{**record, "path": tuple(record["path"]), "write": WRITERS[record["write"]]})
    except (KeyError, TypeError):
        return None
    texts = (column.key, column.title, *column.path)
    return column if all(isinstance(t, str) for t in texts) and column.better in ("higher", "lower", None) else None


def of_headline(key: str, headline: str) -> str:
    """A key of a problem's leading number: `{}` is its name; what is accuracy's without saying so gets it appended.

    >>> of_headline("best_{}", "rmse"), of_headline("best_client", "accuracy"), of_headline("best_client", "rmse")
    ('best_rmse', 'best_client', 'best_client_rmse')
    """
    return key.format(headline) if "{}" in key or headline == "accuracy" else f"{key}_{headline}"


def leading(
    key: str, title: str, path: tuple[str, ...], *, spread: bool = False, compared: bool = True, beside: str = ""
) -> tuple[Column, ...]:
    """A column for every problem's leading number, of which a run has one.

    `spread`: it is a deviation, and less of it is better whatever the number.
    """
    return tuple(
        Column(
            of_headline(key, name),
            f"{title} {'%' if problem.share else problem.title}",
            (of_headline(path[0], name), *path[1:]),
            percent if problem.share else number,
            "higher" if problem.higher_is_better and not spread else "lower",
            compared,
            of_headline(beside, name) if beside else "",
        )
        for name, problem in headlines().items()
    )
