"""What is known about the public data sets: files, addresses, checksums, class names, pixel mean and
deviation.

The MD5 sums are the ones their publishers give (MNIST, Fashion-MNIST, CIFAR) or that are in common use
(EMNIST).
"""

from __future__ import annotations

import string

from accord.data.download import Remote
from accord.data.files import Collection

DIGITS = tuple(string.digits)
LETTERS = tuple(string.ascii_uppercase)
GARMENTS = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
CIFAR100_CLASSES = (
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
PACS_DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")

# Mean and standard deviation of the train pixels, per channel, pixels in [0, 1].
MNIST_PIXELS = ((0.1307,), (0.3081,))
FASHION_PIXELS = ((0.2860,), (0.3530,))
EMNIST_PIXELS = ((0.1722,), (0.3309,))
CIFAR10_PIXELS = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR100_PIXELS = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))

# The first train labels tell MNIST and Fashion-MNIST apart, whose files bear the same names.
FIRST_LABELS = {
    "mnist": (5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3, 5, 3, 6, 1, 7, 2, 8, 6, 9),
    "fashion_mnist": (9, 0, 0, 3, 0, 2, 7, 2, 5, 5, 0, 9, 5, 5, 7, 9, 1, 0, 6, 4),
}

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _gzipped(addresses: tuple[str, ...], md5s: tuple[str, ...]) -> tuple[Remote, ...]:
    return tuple(
        Remote(f"{file}.gz", tuple(f"{address}/{file}.gz" for address in addresses), md5)
        for file, md5 in zip(IDX_FILES, md5s, strict=True)
    )


MNIST = Collection(
    name="mnist",
    files=IDX_FILES,
    folders=("MNIST/raw",),
    remotes=_gzipped(
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
FASHION_MNIST = Collection(
    name="fashion_mnist",
    files=IDX_FILES,
    folders=("FashionMNIST/raw",),
    remotes=_gzipped(
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
EMNIST_LETTERS = Collection(
    name="emnist_letters",
    files=tuple(
        f"emnist-letters-{part}-{kind}-ubyte" for part in ("train", "test") for kind in ("images-idx3", "labels-idx1")
    ),
    folders=("EMNIST/raw",),
    archive="gzip.zip",
    inside="gzip",
    remotes=(
        Remote(
            "gzip.zip",
            ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
            "58c8d27c78d21e728a6bc7b3cc06412e",
        ),
    ),
)
BINARY_ONLY = "It must be the binary version: the Python version is pickled, and Accord never unpickles."
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
