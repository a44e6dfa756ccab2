"""Data sets by name: `load_dataset("mnist")`. A loader's keyword arguments are the options of its data set.

Files are looked for in `data_dir`, `$ACCORD_DATA` and `~/.cache/accord` (in a sub-folder called like the data
set, then in the folder itself) and otherwise downloaded into the first of these.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Annotated, get_args

import numpy as np
import numpy.typing as npt
import torch

from accord.data import catalogue
from accord.data.cifar import parse_cifar
from accord.data.download import Progress
from accord.data.federated import Dataset, Index, Pool
from accord.data.files import Blob, Collection, Places, explained, find, read
from accord.data.folders import Listing, list_parts, numbered, read_images
from accord.data.holdout import holdout
from accord.data.idx import parse_pair
from accord.errors import ConfigError, DataError, nearest
from accord.settings import NOT_NEGATIVE, AtLeast, Range, Registry

Arrays = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]
Pixels = tuple[tuple[float, ...], tuple[float, ...]]

Normalise = Annotated[bool, "subtract the train pixels' mean and divide by their deviation"]
ImageSize = Annotated[int | None, AtLeast(1), "resize all images to this height and width"]
TestFraction = Annotated[float, Range(above=0, below=1), "test share where no test part is given"]
SplitSeed = Annotated[int, NOT_NEGATIVE, "seed of that split"]

DATASETS: Registry[Callable[..., Dataset]] = Registry("dataset")


def load_dataset(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    progress: Progress | None = None,
    **options: object,
) -> Dataset:
    """The data set called `name`, from disk or, if `download`, from its public address.

    `progress(file, bytes_so_far, bytes_in_all)` is called while a file arrives. Other keyword arguments are
    options of the data set, such as `normalise=False`, or `path` and `image_size` for `folder`.
    """
    loader = DATASETS[name]
    return loader(Places.usual(data_dir, download, progress), **_checked(name, loader, options))


def _checked(name: str, loader: Callable[..., Dataset], options: dict[str, object]) -> dict[str, object]:
    parameters = inspect.signature(loader, eval_str=True).parameters
    allowed = [key for key, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
    checked = {}
    for key, value in options.items():
        if key not in allowed:
            raise ConfigError(
                f"the dataset {name!r} has no option {key!r}.{nearest(key, allowed)} Allowed: {', '.join(allowed)}."
            )
        kind, *remarks = get_args(parameters[key].annotation)
        value = os.fspath(value) if isinstance(value, os.PathLike) else value
        # a bool is an int to Python, but image_size=True is a mistake
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            wanted = kind.__name__ if isinstance(kind, type) else str(kind)
            raise ConfigError(f"option {key!r} of the dataset {name!r} must be {wanted}, got {value!r}")
        for remark in remarks:
            if isinstance(remark, Range) and isinstance(value, int | float) and value not in remark:
                raise ConfigError(f"option {key!r} of the dataset {name!r} must be {remark}, got {value}")
        checked[key] = value
    return checked


@DATASETS.add("mnist5k")
def mnist5k(places: Places, *, normalise: Normalise = True) -> Dataset:
    """5,000 MNIST digits that come with Accord: 400 train and 100 test images of each digit."""
    source = resources.files("accord.data") / "embedded" / "mnist5k.npz"
    with explained(source), source.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        train, test = (
            (arrays[f"{part}_x"][:, None], arrays[f"{part}_y"].astype(np.int64)) for part in ("train", "test")
        )
    return _dataset("mnist5k", train, test, catalogue.DIGITS, catalogue.MNIST_PIXELS, normalise)


@DATASETS.add("mnist")
def mnist(places: Places, *, normalise: Normalise = True) -> Dataset:
    """Handwritten digits, 60,000 + 10,000 images of 28 x 28 (LeCun, Cortes, Burges)."""
    train, test = _idx(catalogue.MNIST, places, lowest=0, classes=10)
    return _dataset("mnist", train, test, catalogue.DIGITS, catalogue.MNIST_PIXELS, normalise)


@DATASETS.add("fashion_mnist")
def fashion_mnist(places: Places, *, normalise: Normalise = True) -> Dataset:
    """Clothing, 60,000 + 10,000 grey images of 28 x 28 (Xiao, Rasul, Vollgraf, arXiv:1708.07747)."""
    train, test = _idx(catalogue.FASHION_MNIST, places, lowest=0, classes=10)
    return _dataset("fashion_mnist", train, test, catalogue.GARMENTS, catalogue.FASHION_PIXELS, normalise)


@DATASETS.add("emnist_letters")
def emnist_letters(places: Places, *, normalise: Normalise = True) -> Dataset:
    """Handwritten letters, 124,800 + 20,800 images, both cases merged (Cohen et al., arXiv:1702.05373)."""
    parts = _idx(catalogue.EMNIST_LETTERS, places, lowest=1, classes=26)
    # the files hold each image column by column
    train, test = ((np.ascontiguousarray(x.swapaxes(2, 3)), y) for x, y in parts)
    return _dataset("emnist_letters", train, test, catalogue.LETTERS, catalogue.EMNIST_PIXELS, normalise)


@DATASETS.add("cifar10")
def cifar10(places: Places, *, normalise: Normalise = True) -> Dataset:
    """Colour photographs of 10 classes, 50,000 + 10,000 images of 32 x 32 (Krizhevsky 2009)."""
    *train, test = _blobs(catalogue.CIFAR10, places)
    return _dataset(
        "cifar10",
        parse_cifar(train, label_bytes=1, classes=10),
        parse_cifar([test], label_bytes=1, classes=10),
        catalogue.CIFAR10_CLASSES,
        catalogue.CIFAR10_PIXELS,
        normalise,
    )


@DATASETS.add("cifar100")
def cifar100(places: Places, *, normalise: Normalise = True) -> Dataset:
    """Colour photographs of 100 (fine) classes, 50,000 + 10,000 images of 32 x 32 (Krizhevsky 2009)."""
    train, test = (parse_cifar([blob], label_bytes=2, classes=100) for blob in _blobs(catalogue.CIFAR100, places))
    return _dataset("cifar100", train, test, catalogue.CIFAR100_CLASSES, catalogue.CIFAR100_PIXELS, normalise)


@DATASETS.add("pacs")
def pacs(
    places: Places,
    *,
    image_size: ImageSize = None,
    test_fraction: TestFraction = 0.2,
    split_seed: SplitSeed = 0,
    normalise: Normalise = True,
) -> Dataset:
    """Seven classes in four domains, 9,991 images (Li et al., ICCV 2017, arXiv:1710.03077).

    Domains 0 to 3: art painting, cartoon, photo, sketch. There is no published test part: a share of each
    class of each domain is set aside, always the same for the same seed.
    """
    folders = places.candidates("pacs", "PACS")
    root = next((f for f in folders if all(os.path.isdir(f / d) for d in catalogue.PACS_DOMAINS)), None)
    if root is None:
        raise DataError(
            "pacs: its images are not on this machine, and no public address offers them for download.\n"
            f"Looked in: {', '.join(map(str, folders))}\n"
            f"Get them by way of https://domaingeneralization.github.io and put them into {folders[0]} as "
            f"domain/class/image, with the domains {', '.join(catalogue.PACS_DOMAINS)} and the classes "
            f"{', '.join(catalogue.PACS_CLASSES)}"
        )
    parts = list_parts(root)
    found = {pair for listing in parts.values() for pair in zip(listing.domains, listing.classes, strict=True)}
    wrong = found ^ set(product(catalogue.PACS_DOMAINS, catalogue.PACS_CLASSES))
    if wrong:
        domain, name = min(wrong)
        raise DataError(
            f"{root} {'has' if (domain, name) in found else 'lacks'} {domain}/{name}; PACS has the domains "
            f"{', '.join(catalogue.PACS_DOMAINS)}, each with {', '.join(catalogue.PACS_CLASSES)}"
        )
    dataset = _from_folder("pacs", parts, image_size, test_fraction, split_seed, normalise)
    if image_size is not None:
        return replace(dataset, note=f"resized to {image_size} x {image_size}")
    return replace(dataset, note="32 x 32 copy" if dataset.train.x.shape[2:] == (32, 32) else "")


@DATASETS.add("folder")
def folder(
    places: Places,
    *,
    path: Annotated[str | None, "folder of class/image or domain/class/image"] = None,
    image_size: ImageSize = None,
    test_fraction: TestFraction = 0.2,
    split_seed: SplitSeed = 0,
    normalise: Normalise = True,
) -> Dataset:
    """Your own images, one folder per class."""
    if path is None:
        raise ConfigError("the dataset 'folder' needs the option 'path', a folder with one folder of images per class")
    given = Path(os.path.expanduser(path))
    root = next((place for place in (given, *(r / given for r in places.roots)) if os.path.isdir(place)), given)
    return _from_folder(root.resolve().name, list_parts(root), image_size, test_fraction, split_seed, normalise)


def _dataset(
    name: str, train: Arrays, test: Arrays, classes: tuple[str, ...], pixels: Pixels, normalise: bool
) -> Dataset:
    mean, std = pixels if normalise else ((), ())
    first, second = (Pool(torch.from_numpy(x), torch.from_numpy(y), mean, std) for x, y in (train, test))
    return Dataset(name, first, second, classes)


def _blobs(collection: Collection, places: Places) -> list[Blob]:
    files = read(find(collection, places))
    return [files[name] for name in collection.files]


def _idx(collection: Collection, places: Places, lowest: int, classes: int) -> tuple[Arrays, Arrays]:
    train_x, train_y, test_x, test_y = _blobs(collection, places)
    train = parse_pair(train_x, train_y, side=28, lowest=lowest, classes=classes)
    test = parse_pair(test_x, test_y, side=28, lowest=lowest, classes=classes)
    for other, labels in catalogue.FIRST_LABELS.items():
        if other != collection.name and tuple(train[1][: len(labels)].tolist()) == labels:
            raise DataError(
                f"{train_y.where} belongs to {other}, not to {collection.name} (the names are the same). "
                f"Keep the files of each data set in a folder of its own, here .../{collection.name}"
            )
    return train, test


def _from_folder(
    name: str,
    parts: dict[str, Listing],
    image_size: int | None,
    test_fraction: float,
    split_seed: int,
    normalise: bool,
) -> Dataset:
    listings = list(parts.values())
    paths = [path for listing in listings for path in listing.paths]
    class_names = [name for listing in listings for name in listing.classes]
    domain_names = [name for listing in listings for name in listing.domains]
    classes = tuple(sorted(set(class_names)))
    y = numbered(class_names, classes)
    domains = numbered(domain_names, sorted(set(domain_names))) if domain_names else None
    if "train" in parts:
        count = len(parts["train"].paths)
        train, test = np.arange(count), np.arange(count, len(paths))
    else:
        strata = y if domains is None else domains * len(classes) + y
        train, test = holdout(strata, test_fraction, np.random.default_rng(split_seed))
    x = torch.from_numpy(read_images(paths, image_size))
    half = (0.5,) * x.shape[1] if normalise else ()

    def pool(rows: Index) -> Pool:
        return Pool(x[torch.from_numpy(rows)], torch.from_numpy(y[rows]), half, half)

    return Dataset(
        name,
        pool(train),
        pool(test),
        classes,
        train_domains=None if domains is None else domains[train],
        test_domains=None if domains is None else domains[test],
    )
