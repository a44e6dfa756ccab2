"""Fashion-MNIST: files, addresses and the publishers' MD5 sums."""

from __future__ import annotations

from accord.data.federated import Dataset
from accord.data.files.collection import Collection, Places
from accord.data.files.idx import MNIST_FILES, mnist_remotes, read_idx
from accord.data.public.registry import DATASETS, Normalise, image_pools

CLASSES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
PIXELS = ((0.2860,), (0.3530,))
COLLECTION = Collection(
    name="fashion_mnist",
    files=MNIST_FILES,
    folders=("FashionMNIST/raw",),
    remotes=mnist_remotes(
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        ),
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
)


@DATASETS.add("fashion_mnist")
def fashion_mnist(places: Places, *, normalise: Normalise = True) -> Dataset:
    """Clothing, 60,000 + 10,000 grey images of 28 x 28 (Xiao, Rasul, Vollgraf, arXiv:1708.07747)."""
    train, test = read_idx(COLLECTION, places, lowest=0, classes=10)
    return image_pools("fashion_mnist", train, test, CLASSES, PIXELS, normalise)
