"""Bytes for people."""

from __future__ import annotations

from accord.errors import DataError

UNITS = ("kB", "MB", "GB", "TB", "PB")


def human_bytes(count: float) -> str:
    """Bytes for people, in steps of 1000.

    >>> human_bytes(1_300_000)
    '1.3 MB'
    """
    if not 0 <= count < float("inf"):
        raise DataError(f"a number of bytes must be 0 or more and finite, got {count}")
    if count < 999.5:
        return f"{count:.0f} B"
    step = 1
    # 999.96 would be printed as 1000.0: it belongs to the next unit.
    while count / 1000**step >= 999.95 and step < len(UNITS):
        step += 1
    return f"{count / 1000**step:.1f} {UNITS[step - 1]}"
