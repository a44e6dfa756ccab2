"""Files with one JSON object per line, read strictly: what cannot be read is said line by line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from accord.errors import DataError
from accord.wire.records import Bounds, parse

BOUNDS = Bounds(size=1 << 26, depth=16, entries=1 << 23)  # of one line: a cohort of millions


class Line(NamedTuple):
    """A line as it was found."""

    number: int  # from 1
    raw: bytes  # its end included; nothing of one that is too long
    record: dict[str, Any] | None  # None: it cannot be read
    problem: str  # why not
    whole: bool  # whether it ends as lines do; only the last one may not


def lines(file: IO[bytes]) -> Iterator[Line]:
    """All lines of an open file; never more than one of them in memory."""
    number = 0
    while raw := file.readline(BOUNDS.size + 1):
        number += 1
        if len(raw) > BOUNDS.size:
            while not raw.endswith(b"\n") and (raw := file.readline(BOUNDS.size)):
                pass
            yield Line(number, b"", None, f"it has more than the {BOUNDS.size} bytes allowed", raw.endswith(b"\n"))
            continue
        whole = raw.endswith(b"\n")
        try:
            yield Line(number, raw, parse(raw, BOUNDS, "it"), "", whole)
        except DataError as error:
            yield Line(number, raw, None, str(error) if whole else "it is cut short", whole)
