"""The column of a table that is to be predicted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accord.data.columns import Values, numbers, quoted, text
from accord.data.federated import Index
from accord.data.own.sites import in_order
from accord.data.own.table_columns import kind_of
from accord.errors import DataError

CLASSES = 20  # different whole numbers that are taken for classes without being asked


def class_numbers(parts: Sequence[Values], label: str, task: str) -> tuple[list[Index], tuple[str, ...]]:
    """Class numbers of every part, and the classes' names."""
    kind = kind_of(parts[0])
    if kind == "date":
        raise DataError(f"the label {quoted(label)} is a date; make classes of it")
    whole = kind != "number" or all(not np.mod(numbers(part, label), 1).any() for part in parts)
    if task == "regression" or (task == "auto" and not whole):
        raise DataError(
            f"the label {quoted(label)} is an amount, and tables are for classes so far: make classes of it"
        )
    if not whole:
        raise DataError(f"the label {quoted(label)} has fractions, which are no classes; say task='regression'")
    words = [[text(value) for value in part.tolist()] for part in parts]
    names = in_order(set().union(*words))
    if kind == "number":
        names = sorted(names, key=float)
        if task == "auto" and len(names) > CLASSES:
            raise DataError(
                f"the label {quoted(label)} has {len(names)} different whole numbers: say task='classification' if "
                "they are classes, or task='regression' if they are amounts"
            )
    if len(set(words[0])) < 2:
        raise DataError(f"the label {quoted(label)} is {quoted(words[0][0])} in every row: there is nothing to learn")
    place = {name: number for number, name in enumerate(names)}
    return [np.array([place[word] for word in some], dtype=np.int64) for some in words], tuple(names)
