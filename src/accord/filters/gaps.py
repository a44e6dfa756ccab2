"""Which positions of a long vector are meant, in few bytes: the gaps between them, or a bit for each.

Positions rise, so the gap to the one before is small: a gap below 128 takes one byte, one below 16 384 two, seven bits
in each, the lowest first; the highest bit says that more follow. Where that would take more than a bit for every
position, the bits are written instead: the first byte says which of the two it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from accord.errors import DataError

GAPS, BITS = 0, 1
LONGEST = 9  # bytes of one gap: 63 bits

Positions = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def encode(positions: Positions, length: int) -> Bytes:
    """Rising positions in a vector of `length` values."""
    gaps = np.diff(positions, prepend=-1) - 1
    widths = np.ones(len(gaps), np.int64)
    rest = gaps >> 7
    while rest.any():
        widths += rest > 0
        rest >>= 7
    if int(widths.sum()) >= (length + 7) // 8:
        marked = np.zeros(length, np.uint8)
        marked[positions] = 1
        return np.concatenate([np.array([BITS], np.uint8), np.packbits(marked)])
    starts = np.cumsum(widths) - widths
    written = np.zeros(int(widths.sum()), np.uint8)
    for place in range(int(widths.max(initial=0))):
        has = widths > place
        more = (widths[has] > place + 1).astype(np.uint8) << 7
        written[starts[has] + place] = ((gaps[has] >> (7 * place)) & 127).astype(np.uint8) | more
    return np.concatenate([np.array([GAPS], np.uint8), written])


def decode(data: Bytes, length: int) -> Positions:
    """What `encode` was given; DataError for bytes that are no positions in a vector of `length` values."""
    if len(data) == 0 or data[0] not in (GAPS, BITS):
        raise DataError("these bytes do not say which values were kept: they begin with neither 0 nor 1")
    body = data[1:]
    if data[0] == BITS:
        if len(body) != (length + 7) // 8:
            raise DataError(f"{len(body)} bytes cannot mark {length} values: {(length + 7) // 8} are needed")
        bits = np.unpackbits(body)
        if bits[length:].any():
            raise DataError(f"a value behind the last of {length} is marked")
        return np.flatnonzero(bits[:length])
    ends = np.flatnonzero(body < 128)
    if len(body) and (len(ends) == 0 or ends[-1] != len(body) - 1):
        raise DataError("the last gap between kept values is cut short")
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    widths = ends - starts + 1
    if len(widths) and int(widths.max()) > LONGEST:
        raise DataError(f"a gap between kept values takes {int(widths.max())} bytes, more than {LONGEST}")
    gaps = np.zeros(len(ends), np.int64)
    for place in range(int(widths.max(initial=0))):
        has = widths > place
        gaps[has] |= (body[starts[has] + place].astype(np.int64) & 127) << (7 * place)
    if len(gaps) and (int(gaps.max()) >= length or len(gaps) > length):
        raise DataError(f"a kept value lies behind the last of {length}")
    positions = np.cumsum(gaps + 1) - 1
    if len(positions) and int(positions[-1]) >= length:
        raise DataError(f"a kept value lies behind the last of {length}")
    return positions
