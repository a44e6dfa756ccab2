"""CIFAR's binary format: records of one or two label bytes and 3 x 32 x 32 pixels, red plane first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from accord.data.files.contents import Blob
from accord.errors import DataError

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
BINARY_ONLY = "It must be the binary version: the Python version is pickled, and Accord never unpickles."


def parse_cifar(
    blobs: Sequence[Blob], label_bytes: int, classes: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images [N, 3, 32, 32] and labels of some files in a row; the last label byte is the (fine) class."""
    record = label_bytes + PIXELS
    for blob in blobs:
        if len(blob.data) == 0 or len(blob.data) % record:
            raise DataError(
                f"{blob.where} is cut short or not a CIFAR binary file: {len(blob.data)} bytes are no whole, "
                f"positive number of records of {record} bytes; download or copy it again"
            )
        y = blob.data.reshape(-1, record)[:, label_bytes - 1]
        bad = np.flatnonzero(y >= classes)
        if len(bad):
            raise DataError(
                f"{blob.where} holds {len(bad)} labels outside 0..{classes - 1}, first {y[bad[0]]} in record "
                f"{bad[0]}. Is it a file of another data set?"
            )
    rows = [blob.data.reshape(-1, record) for blob in blobs]
    x = np.concatenate([part[:, label_bytes:] for part in rows]).reshape(-1, *SHAPE)
    return x, np.concatenate([part[:, label_bytes - 1] for part in rows]).astype(np.int64)
