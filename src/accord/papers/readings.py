"""The words beside a table, in which every number is computed: placeholders of a text, filled from the table.

`{fedavg.cifar10}` is our number of a row in a column, `{fedavg.cifar10.paper}` the printed one; instead of `paper` also
`std`, `rounds` (how far it ran), `seconds`, `seeds`, `at 130` (accuracy at a round, in percent) and `to 50` (the first
round with that accuracy, in percent), the last two also of runs that diverged later. Two of them may be joined:
`{fedbr.cifar10 - fedavg.cifar10}`, or with `/`. The difference of two rows of a column, in it or at a round, is taken
over the seeds both have, as leads are; of runs that did not come equally far, at the last round that both reached.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from accord.errors import ConfigError
from accord.measures.accuracy import rounds_to
from accord.papers.experiment import Column
from accord.papers.table import Cell, Table, ahead, by_seed

_PLACE = re.compile(r"\{([^{}]+)\}")
UNKNOWN = "(no number yet)"

Reading = Callable[[Cell, str], float | None]


def filled(text: str, table: Table) -> str:
    """The text with its numbers; where there is none yet, it says so."""
    return _PLACE.sub(lambda match: _value(match[1], table), text).strip()


def _value(expression: str, table: Table) -> str:
    for sign in (" - ", " / "):
        if sign in expression:
            left, right = (_term(part, table) for part in expression.split(sign))
            if left.value is None or right.value is None or (sign == " / " and right.value == 0):
                return UNKNOWN
            if sign == " / ":
                return f"{left.value / right.value:.1f}"
            lead = _paired(left, right)
            return left.write(left.value - right.value if lead is None else lead)
    one = _term(expression, table)
    return UNKNOWN if one.value is None else one.write(one.value)


class _Term(NamedTuple):
    """One number of a table that a text asks for."""

    cell: Cell
    column: Column
    kind: str
    argument: str
    value: float | None
    write: Callable[[float], str]


def _paired(left: _Term, right: _Term) -> float | None:
    """The lead of one row over another in a column, over the seeds both have, as far as both went or at a round."""
    if left.column is not right.column or (left.kind, left.argument) != (right.kind, right.argument):
        return None
    if left.kind == "at":
        return ahead(*(_at_by_seed(one.cell, int(one.argument)) for one in (left, right)))
    if left.kind:
        return None
    common = min(left.cell.rounds, right.cell.rounds)
    return ahead(*(by_seed(one.column, one.cell.records, common) for one in (left, right)))


def _term(text: str, table: Table) -> _Term:
    text = text.strip()
    row = _first(text, [one.name for one in table.experiment.rows])
    rest = text[len(row) + 1 :]
    key = _first(rest, [one.key for one in table.experiment.columns])
    column = next((one for one in table.experiment.columns if one.key == key), None)
    cell = table.cells.get((row, column.key)) if column is not None else None
    kind, _, argument = rest[len(column.key) + 1 :].partition(" ") if column is not None else ("?", "", "")
    if column is None or cell is None or kind not in READINGS:
        raise ConfigError(f"{table.experiment.id}: its text asks for {{{text}}}, which is no number of its table")
    return _Term(cell, column, kind, argument, READINGS[kind](cell, argument), _writer(kind, column))


def _first(text: str, names: Sequence[str]) -> str:
    """The longest of the names that `text` begins with, up to a dot; names may hold dots. Empty: none."""
    return max((name for name in names if f"{text}.".startswith(f"{name}.")), key=len, default="")


def _writer(kind: str, column: Column) -> Callable[[float], str]:
    if kind in ("", "std", "paper"):
        return column.number.write
    return (lambda value: f"{value:.1f}") if kind == "at" else (lambda value: f"{value:.0f}")


def _ours(cell: Cell, argument: str) -> float | None:
    return None if cell.ours is None else cell.ours.mean


def _at(cell: Cell, argument: str) -> float | None:
    """Accuracy at a round, in percent, the mean over runs."""
    values = _at_by_seed(cell, int(argument)).values()
    return statistics.fmean(values) if values else None


def _at_by_seed(cell: Cell, round: int) -> dict[int, float]:
    seeds = [record.seed for record in cell.records or cell.diverged]
    return {seed: 100 * curve[round] for seed, curve in zip(seeds, _curves(cell), strict=True) if round in curve}


def _to(cell: Cell, argument: str) -> float | None:
    """The first round with an accuracy, in percent; the mean over runs, if all reached it."""
    target = float(argument) / 100
    reached = [rounds_to(curve, [target])[target] for curve in _curves(cell)]
    known = [round for round in reached if round is not None]
    return statistics.fmean(known) if known and len(known) == len(reached) else None


def _curves(cell: Cell) -> list[dict[int, float]]:
    """Accuracy by round, of each run."""
    return [
        {one["round"]: one["accuracy"] for one in record.fields["evaluations"] if one.get("accuracy") is not None}
        for record in cell.records or cell.diverged
    ]


READINGS: Mapping[str, Reading] = {
    "": _ours,
    "paper": lambda cell, _: cell.printed.value,
    "std": lambda cell, _: cell.ours.std if cell.ours is not None else None,
    "rounds": lambda cell, _: float(cell.rounds) or None,
    "seconds": lambda cell, _: sum(record.seconds for record in cell.records) or None,
    "seeds": lambda cell, _: float(len(cell.records)) or None,
    "at": _at,
    "to": _to,
}
