"""The IDX format of MNIST and its relatives: a magic number, the length of each axis, then the bytes.

Magic: two zero bytes, the type (8 = unsigned byte), the number of axes; all lengths are 32-bit big-endian.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from accord.data.files.collection import Collection, Places
from accord.data.files.contents import Arrays, Blob, read_collection
from accord.data.files.download import Remote
from accord.errors import DataError

UNSIGNED_BYTE = 8
MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

# The first train labels tell MNIST and Fashion-MNIST apart, whose files bear the same names.
FIRST_LABELS = {
    "mnist": (5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3, 5, 3, 6, 1, 7, 2, 8, 6, 9),
    "fashion_mnist": (9, 0, 0, 3, 0, 2, 7, 2, 5, 5, 0, 9, 5, 5, 7, 9, 1, 0, 6, 4),
}


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


def parse_pair(images: Blob, labels: Blob, *, side: int, lowest: int, classes: int) -> Arrays:
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


def mnist_remotes(addresses: tuple[str, ...], md5s: tuple[str, ...]) -> tuple[Remote, ...]:
    """The four files under MNIST's names, gzipped, below each of the addresses."""
    return tuple(
        Remote(f"{file}.gz", tuple(f"{address}/{file}.gz" for address in addresses), md5)
        for file, md5 in zip(MNIST_FILES, md5s, strict=True)
    )


def read_idx(collection: Collection, places: Places, lowest: int, classes: int) -> tuple[Arrays, Arrays]:
    """The train and the test part of a data set of four IDX files, images of 28 x 28."""
    train_x, train_y, test_x, test_y = read_collection(collection, places)
    train = parse_pair(train_x, train_y, side=28, lowest=lowest, classes=classes)
    test = parse_pair(test_x, test_y, side=28, lowest=lowest, classes=classes)
    for other, labels in FIRST_LABELS.items():
        if other != collection.name and tuple(train[1][: len(labels)].tolist()) == labels:
            raise DataError(
                f"{train_y.where} belongs to {other}, not to {collection.name} (the names are the same). "
                f"Keep the files of each data set in a folder of its own, here .../{collection.name}"
            )
    return train, test
