"""CIFAR-100: files, address and the publisher's MD5 sum."""

from __future__ import annotations

from accord.data.federated import Dataset
from accord.data.files.cifar import BINARY_ONLY, parse_cifar
from accord.data.files.collection import Collection, Places
from accord.data.files.contents import read_collection
from accord.data.files.download import Remote
from accord.data.public.registry import DATASETS, Normalise, image_pools

CLASSES = (
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
PIXELS = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
COLLECTION = Collection(
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


@DATASETS.add("cifar100")
def cifar100(places: Places, *, normalise: Normalise = True) -> Dataset:
    """Colour photographs of 100 (fine) classes, 50,000 + 10,000 images of 32 x 32 (Krizhevsky 2009)."""
    train, test = (parse_cifar([blob], label_bytes=2, classes=100) for blob in read_collection(COLLECTION, places))
    return image_pools("cifar100", train, test, CLASSES, PIXELS, normalise)
