"""The IDX format of MNIST and its relatives: a magic number, the length of each axis, then the bytes.

Magic: two zero bytes, the type (8 = unsigned byte), the number of axes; all lengths are 32-bit big-endian.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from accord.data.files import Blob
from accord.errors import DataError

UNSIGNED_BYTE = 8


def parse_idx(blob: Blob, axes: int) -> npt.NDArray[np.uint8]:
    """The array in an IDX file of unsigned bytes with that many axes; the file must end where it ends."""
    header = 4 + 4 * axes
    if len(blob.data) < header:
        raise DataError(
            f"{blob.where} is cut short: {len(blob.data)} bytes, but the header alone takes {header}; "
            "download or copy it again"
        )
    magic = blob.data[:4].tobytes()
    if magic != bytes((0, 0, UNSIGNED_BYTE, axes)):
        raise DataError(
            f"{blob.where} is not an IDX file of {'images' if axes == 3 else 'labels'}: it starts with "
            f"{magic.hex()}, expected {bytes((0, 0, UNSIGNED_BYTE, axes)).hex()}. Were files swapped?"
        )
    shape = tuple(int(length) for length in blob.data[4:header].view(">u4"))
    expected = header + math.prod(shape)
    if len(blob.data) != expected:
        kind = "cut short" if len(blob.data) < expected else "too long"
        raise DataError(
            f"{blob.where} is {kind}: {len(blob.data)} bytes, but its header promises {expected} "
            f"({' x '.join(map(str, shape))}); download or copy it again"
        )
    array: npt.NDArray[np.uint8] = blob.data[header:].reshape(shape)
    return array


def parse_pair(
    images: Blob, labels: Blob, *, side: int, lowest: int, classes: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images [N, 1, side, side] and labels 0..classes-1; in the file labels count from `lowest`."""
    x = parse_idx(images, axes=3)
    y = parse_idx(labels, axes=1)
    if x.shape[1:] != (side, side):
        raise DataError(
            f"{images.where} holds images of {x.shape[1]} x {x.shape[2]}; they must be {side} x {side}. "
            "Is it a file of another data set?"
        )
    if len(x) != len(y) or len(x) == 0:
        raise DataError(
            f"{images.where} holds {len(x)} images but {labels.where} {len(y)} labels; there must be as many "
            "labels as images, and at least one. Do the files belong together?"
        )
    bad = np.flatnonzero((y < lowest) | (y >= lowest + classes))
    if len(bad):
        raise DataError(
            f"{labels.where} holds {len(bad)} labels outside {lowest}..{lowest + classes - 1}, first "
            f"{y[bad[0]]} at position {bad[0]}. Is it a file of another data set?"
        )
    return x[:, None], y.astype(np.int64) - lowest
