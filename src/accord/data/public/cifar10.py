"""CIFAR-10: files, address and the publisher's MD5 sum."""

from __future__ import annotations

from accord.data.federated import Dataset
from accord.data.files.cifar import BINARY_ONLY, parse_cifar
from accord.data.files.collection import Collection, Places
from accord.data.files.contents import read_collection
from accord.data.files.download import Remote
from accord.data.public.registry import DATASETS, Normalise, image_pools

CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
PIXELS = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
COLLECTION = Collection(
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


@DATASETS.add("cifar10")
def cifar10(places: Places, *, normalise: Normalise = True) -> Dataset:
    """Colour photographs of 10 classes, 50,000 + 10,000 images of 32 x 32 (Krizhevsky 2009)."""
    *train, test = read_collection(COLLECTION, places)
    return image_pools(
        "cifar10",
        parse_cifar(train, label_bytes=1, classes=10),
        parse_cifar([test], label_bytes=1, classes=10),
        CLASSES,
        PIXELS,
        normalise,
    )
