"""Client ids as they come, strings, numbers or a data frame's column, as numbers 0..K-1 and names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from accord.data.columns import gaps_in, listed, quoted, text, vector
from accord.data.federated import Index
from accord.errors import DataError

LONGEST = 200  # characters of a name


class Sites(NamedTuple):
    """The client of each sample, by number, and the clients' names in the order of the numbers."""

    train: Index
    test: Index | None
    names: tuple[str, ...]


def site_ids(clients: Any, count: int, what: str = "clients") -> list[str]:
    """The name of each sample's client; ids are whole numbers or strings, not both."""
    if not isinstance(clients, Tensor) and np.ma.is_masked(clients):
        raise DataError(f"{what} has masked entries; fill or drop them first")
    values = vector(clients, what) if np.ndim(clients) == 1 else None
    if values is None or len(values) != count:
        shape = tuple(np.shape(clients))
        raise DataError(f"there are {count} samples but {what} has shape {shape}; give one id per sample")
    gaps = gaps_in(values)
    if gaps.any():
        raise DataError(
            f"{what} has {int(gaps.sum())} missing ids, first at position {int(np.argmax(gaps))}; leave samples that "
            "belong to no client out, or give them a client of their own"
        )
    names = [_name(value, what) for value in values.tolist()]
    if len({isinstance(value, str) for value in values.tolist()}) > 1:
        raise DataError(f"{what} mixes strings and numbers; use one kind")  # 1 and "1" would become one client
    below = [place for place, name in enumerate(names) if name.startswith("-") and name[1:].isdigit()]
    if below and not isinstance(values[below[0]], str):
        raise DataError(
            f"{what} has {len(below)} negative ids, first at position {below[0]}; leave samples that belong to no "
            "client out"
        )
    return names


def numbered(train: Sequence[str], test: Sequence[str] | None = None) -> Sites:
    """Clients in the order of their ids, numbers by their size; test clients must have train samples."""
    names = tuple(in_order(set(train)))
    alike = [name for name in names if name != name.strip() and name.strip() in names]
    if alike:
        raise DataError(f"clients whose names differ by spaces only: {listed(alike)}; write each in one way")
    place = {name: number for number, name in enumerate(names)}
    strangers = in_order(set(test or ()) - set(names))
    if strangers:
        raise DataError(
            f"{len(strangers)} clients have test samples but no train samples, first {strangers[0]}; give "
            "them train samples or leave them out"
        )

    def numbers(some: Sequence[str]) -> Index:
        return np.array([place[name] for name in some], dtype=np.int64)

    return Sites(numbers(train), None if test is None else numbers(test), names)


def in_order(names: set[str]) -> list[str]:
    """Sorted; by value if all are whole numbers, so that 10 comes after 9."""
    whole = all(name.isascii() and name.isdigit() for name in names)
    return sorted(names, key=(lambda name: (int(name), name)) if whole else None)


def _name(value: Any, what: str) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise DataError(f"{what} must be text or whole numbers, and {quoted(value)} is not UTF-8") from None
    if isinstance(value, str):
        if not value.strip() or len(value) > LONGEST:
            raise DataError(f"{what} must be names of 1 to {LONGEST} characters, got {quoted(value)}")
        return value
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if not whole or isinstance(value, bool):
        raise DataError(f"{what} must be whole numbers or strings, got {quoted(value)}")
    return text(value)
