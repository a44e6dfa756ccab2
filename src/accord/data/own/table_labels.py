"""The column of a table that is to be predicted: classes, or amounts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from accord.data.columns import Values, listed, numbers, quoted, text, too_large
from accord.data.own.sites import in_order
from accord.data.own.table_columns import kind_of
from accord.errors import DataError

CLASSES = 20  # different whole numbers that are taken for classes without being asked


class Outcomes(NamedTuple):
    """What kind of problem it is, what is to be predicted of each part's rows, and the names of a network's outputs."""

    problem: str
    parts: list[Tensor]
    names: tuple[str, ...]


def outcomes(parts: Sequence[Values], label: str, task: str, *, alone: bool = True) -> Outcomes:
    """By `task`; `auto` takes numbers with fractions for amounts, and words and a few whole numbers for classes.

    `alone`: these rows are all there are, and must have something to tell apart; other sites may have the rest.
    """
    kind = kind_of(parts[0])
    if kind == "date":
        raise DataError(f"the label {quoted(label)} is a date; make classes or a number of it")
    found = [numbers(part, label) for part in parts] if kind == "number" else []
    empty = [int(row) for part in found for row in np.flatnonzero(np.isnan(part))]
    if empty:  # numbers as text: what is missing otherwise has been seen before
        raise DataError(f"the label {quoted(label)} has no number in row {empty[0]}; leave such rows out")
    whole = not any(np.mod(part, 1).any() for part in found)
    if task == "regression" or (task == "auto" and not whole):
        if not found:
            raise DataError(f"the label {quoted(label)} holds no numbers, which task='regression' needs")
        if alone and np.ptp(found[0]) == 0:
            raise DataError(_constant(label, found[0][0]))
        amounts = [torch.from_numpy(part).to(torch.get_default_dtype()) for part in found]
        if not all(part.isfinite().all() for part in amounts):
            raise DataError(too_large(label))
        return Outcomes("regression", amounts, (label,))
    if not whole:
        raise DataError(f"the label {quoted(label)} has fractions, which are no classes; say task='regression'")
    return _classes(parts, label, kind, task, alone)


def agreed_outcomes(parts: Sequence[Values], label: str, problem: str, names: tuple[str, ...]) -> Outcomes:
    """As a schema has it: classes by their names there, or amounts."""
    if problem == "regression":
        return outcomes(parts, label, problem, alone=False)._replace(names=names)
    place = {name: number for number, name in enumerate(names)}
    words = [[text(value) for value in part.tolist()] for part in parts]
    strange = sorted(set().union(*words) - place.keys())
    if strange:
        raise DataError(f"the label {quoted(label)} has classes the schema has not: {listed(strange)}")
    return Outcomes(problem, [torch.tensor([place[word] for word in some]) for some in words], names)


def _classes(parts: Sequence[Values], label: str, kind: str, task: str, alone: bool) -> Outcomes:
    words = [[text(value) for value in part.tolist()] for part in parts]
    names = in_order(set().union(*words))
    if kind == "number":
        names = sorted(names, key=float)
        if task == "auto" and len(names) > CLASSES:
            raise DataError(
                f"the label {quoted(label)} has {len(names)} different whole numbers: say task='classification' if "
                "they are classes, or task='regression' if they are amounts"
            )
    if alone and len(set(words[0])) < 2:
        raise DataError(_constant(label, words[0][0]))
    place = {name: number for number, name in enumerate(names)}
    return Outcomes("classification", [torch.tensor([place[word] for word in some]) for some in words], tuple(names))


def _constant(label: str, value: object) -> str:
    return f"the label {quoted(label)} is {quoted(text(value))} in every row: there is nothing to learn"
