"""MNIST: files, addresses and the publishers' MD5 sums."""

from __future__ import annotations

import string

from accord.data.federated import Dataset
from accord.data.files.collection import Collection, Places
from accord.data.files.idx import MNIST_FILES, mnist_remotes, read_idx
from accord.data.public.registry import DATASETS, Normalise, image_pools

CLASSES = tuple(string.digits)
PIXELS = ((0.1307,), (0.3081,))
COLLECTION = Collection(
    name="mnist",
    files=MNIST_FILES,
    folders=("MNIST/raw",),
    remotes=mnist_remotes(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ),
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
)


@DATASETS.add("mnist")
def mnist(places: Places, *, normalise: Normalise = True) -> Dataset:
    """Handwritten digits, 60,000 + 10,000 images of 28 x 28 (LeCun, Cortes, Burges)."""
    train, test = read_idx(COLLECTION, places, lowest=0, classes=10)
    return image_pools("mnist", train, test, CLASSES, PIXELS, normalise)
