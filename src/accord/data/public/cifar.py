"""CIFAR-10 and CIFAR-100: files, addresses, the publisher's MD5 sums, and the binary format.

A record is one or two label bytes and 3 x 32 x 32 pixels, red plane first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accord.data.federated import Dataset
from accord.data.files.collection import Collection, Places
from accord.data.files.contents import Arrays, Blob, read_collection
from accord.data.files.download import Remote
from accord.data.public.registry import DATASETS, Normalise, image_pools
from accord.errors import DataError

SHAPE = (3, 32, 32)
IMAGE_BYTES = 3 * 32 * 32
BINARY_ONLY = "It must be the binary version: the Python version is pickled, and Accord never unpickles."

CLASSES_10 = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
PIXELS_10 = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR10 = Collection(
    name="cifar10",
    files=(*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"),
    archive="cifar-10-binary.tar.gz",
    inside="cifar-10-batches-bin",
    hint=BINARY_ONLY,
    remotes=(
        Remote(
            "cifar-10-binary.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
            "c32a1d4ab5d03f1284b67883e8d87530",
        ),
    ),
)

CLASSES_100 = (
    *("apple", "aquarium_fish", "baby", "bear", "beaver"),
    *("bed", "bee", "beetle", "bicycle", "bottle"),
    *("bowl", "boy", "bridge", "bus", "butterfly"),
    *("camel", "can", "castle", "caterpillar", "cattle"),
    *("chair", "chimpanzee", "clock", "cloud", "cockroach"),
    *("couch", "crab", "crocodile", "cup", "dinosaur"),
    *("dolphin", "elephant", "flatfish", "forest", "fox"),
    *("girl", "hamster", "house", "kangaroo", "keyboard"),
    *("lamp", "lawn_mower", "leopard", "lion", "lizard"),
    *("lobster", "man", "maple_tree", "motorcycle", "mountain"),
    *("mouse", "mushroom", "oak_tree", "orange", "orchid"),
    *("otter", "palm_tree", "pear", "pickup_truck", "pine_tree"),
    *("plain", "plate", "poppy", "porcupine", "possum"),
    *("rabbit", "raccoon", "ray", "road", "rocket"),
    *("rose", "sea", "seal", "shark", "shrew"),
    *("skunk", "skyscraper", "snail", "snake", "spider"),
    *("squirrel", "streetcar", "sunflower", "sweet_pepper", "table"),
    *("tank", "telephone", "television", "tiger", "tractor"),
    *("train", "trout", "tulip", "turtle", "wardrobe"),
    *("whale", "willow_tree", "wolf", "woman", "worm"),
)
PIXELS_100 = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
CIFAR100 = Collection(
    name="cifar100",
    files=("train.bin", "test.bin"),
    archive="cifar-100-binary.tar.gz",
    inside="cifar-100-binary",
    hint=BINARY_ONLY,
    remotes=(
        Remote(
            "cifar-100-binary.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
            "03b5dce01913d631647c71ecec9e9cb8",
        ),
    ),
)


@DATASETS.add("cifar10")
def cifar10(places: Places, *, normalise: Normalise = True) -> Dataset:
    """Colour photographs of 10 classes, 50,000 + 10,000 images of 32 x 32 (Krizhevsky 2009)."""
    *train, test = read_collection(CIFAR10, places)
    return image_pools(
        "cifar10",
        parse_cifar(train, label_bytes=1, classes=10),
        parse_cifar([test], label_bytes=1, classes=10),
        CLASSES_10,
        PIXELS_10,
        normalise,
    )


@DATASETS.add("cifar100")
def cifar100(places: Places, *, normalise: Normalise = True) -> Dataset:
    """Colour photographs of 100 (fine) classes, 50,000 + 10,000 images of 32 x 32 (Krizhevsky 2009)."""
    train, test = (parse_cifar([blob], label_bytes=2, classes=100) for blob in read_collection(CIFAR100, places))
    return image_pools("cifar100", train, test, CLASSES_100, PIXELS_100, normalise)


def parse_cifar(blobs: Sequence[Blob], label_bytes: int, classes: int) -> Arrays:
    """Images [N, 3, 32, 32] and labels of some files in a row; the last label byte is the (fine) class."""
    record = label_bytes + IMAGE_BYTES
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
