"""Clients as they were measured: CSV files with a line per client, or per time in which it was there."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from accord.errors import DataError

Numbers = np.ndarray[Any, np.dtype[np.float64]]
LARGEST = 1 << 28  # bytes of a file


@dataclass(frozen=True)
class Devices:
    """What a file says of every client; columns it does not have are empty."""

    seconds_per_step: Numbers | None  # [K]
    mbit: Numbers | None
    latency: Numbers | None
    digest: str = field(repr=False)


@dataclass(frozen=True)
class Intervals:
    """Who is there from when until when."""

    client: np.ndarray[Any, np.dtype[np.int64]]  # [n]
    begin: Numbers
    until: Numbers
    digest: str = field(repr=False)


def read_devices(path: str, names: Sequence[str]) -> Devices:
    """A line per client: `client` and at least one of `seconds_per_step`, `mbit`, `latency`."""
    known = ("seconds_per_step", "mbit", "latency")
    rows, columns, digest = _rows(path, names, ("client",), known)
    if not set(columns) & set(known):
        raise DataError(f"{path} says nothing of its clients: give it a column {', '.join(known[:2])} or {known[2]}")
    values = {name: np.full(len(names), np.nan) for name in known if name in columns}
    seen: set[int] = set()
    for line, client, row in rows:
        if client in seen:
            raise DataError(f"{path}, line {line}: a second line of the client {names[client]!r}")
        seen.add(client)
        for name, found in values.items():
            found[client] = _number(path, line, name, row[name], positive=name != "latency")
    if lacking := sorted(set(range(len(names))) - seen):
        shown = ", ".join(repr(names[client]) for client in lacking[:3])
        raise DataError(
            f"{path} has no line of {len(lacking)} of the {len(names)} clients ({shown}{', ...' * (len(lacking) > 3)})"
        )
    return Devices(values.get("seconds_per_step"), values.get("mbit"), values.get("latency"), digest)


def read_intervals(path: str, names: Sequence[str]) -> Intervals:
    """A line per time in which a client is there: `client`, `from`, `until`, in seconds."""
    rows, _, digest = _rows(path, names, ("client", "from", "until"), ())
    found: list[tuple[int, float, float]] = []
    for line, client, row in rows:
        begin, until = (_number(path, line, name, row[name], positive=False) for name in ("from", "until"))
        if until <= begin:
            raise DataError(f"{path}, line {line}: until = {until:g} must come after from = {begin:g}")
        found.append((client, begin, until))
    if not found:
        raise DataError(f"{path} has no lines, so nobody would ever be there")
    clients, begins, untils = (np.array(column) for column in zip(*found, strict=True))
    return Intervals(clients.astype(np.int64), begins, untils, digest)


def _rows(
    path: str, names: Sequence[str], wanted: Sequence[str], more: Sequence[str]
) -> tuple[Iterator[tuple[int, int, dict[str, str]]], list[str], str]:
    """(line, client, values) of each line, the names of the columns, and a digest of the file."""
    try:
        file = Path(path)
        if file.stat().st_size > LARGEST:
            raise DataError(f"{path} has more than {LARGEST} bytes, too many for a trace of clients")
        data = file.read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot read the trace {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text; a trace is a CSV file") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    columns = [*(_told(path, lambda: reader.fieldnames) or [])]
    if lacking := [name for name in wanted if name not in columns]:
        raise DataError(f"{path} has no column {lacking[0]!r}; it must have {', '.join([*wanted, *more])}")
    number = {name: client for client, name in enumerate(names)}

    def lines() -> Iterator[tuple[int, int, dict[str, str]]]:
        while (row := _told(path, lambda: next(reader, None))) is not None:
            name = str(row["client"]).strip()
            if name not in number:
                example = ", ".join(repr(known) for known in list(names)[:3])
                raise DataError(
                    f"{path}, line {reader.line_num}: there is no client {name!r}; there are {example}, ..."
                )
            yield reader.line_num, number[name], row

    return lines(), columns, hashlib.sha256(data).hexdigest()


def _told(path: str, read: Callable[[], Any]) -> Any:
    """What the reader gives; what it does not understand as one sentence."""
    try:
        return read()
    except csv.Error as error:
        raise DataError(f"{path} is not a CSV file: {error}") from error


def _number(path: str, line: int, column: str, text: str | None, *, positive: bool) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0 or (positive and value == 0):
        least = "above 0" if positive else "0 or more"
        raise DataError(f"{path}, line {line}: {column} = {text!r} must be a number, {least}")
    return value
