"""Your own images in folders: one per class, or one per site with one per class inside."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from accord.data.federated import Dataset
from accord.data.files.collection import Places
from accord.data.files.folders import image_dataset, list_parts
from accord.data.public.registry import DATASETS, ImageSize, Normalise, SplitSeed, TestFraction
from accord.errors import ConfigError


@DATASETS.add("folder")
def folder(
    places: Places,
    *,
    path: Annotated[str | None, "folder of class/image or site/class/image, or of train and test with these"] = None,
    image_size: ImageSize = None,
    test_fraction: TestFraction = 0.2,
    split_seed: SplitSeed = 0,
    normalise: Normalise = True,
) -> Dataset:
    """Your own images, one folder per class, or one per site with one per class inside."""
    if path is None:
        raise ConfigError("the dataset 'folder' needs the option 'path', a folder with one folder of images per class")
    root = places.own(path)
    return from_folder(root, image_size=image_size, test_fraction=test_fraction, seed=split_seed, normalise=normalise)


def from_folder(
    path: str | os.PathLike[str],
    *,
    image_size: int | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    normalise: bool = True,
    name: str | None = None,
) -> Dataset:
    """A data set of the images below `path`: `class/image`, or `site/class/image` where they belong to clients.

    Either may lie below folders `train` and `test`; else `test_fraction` of each class of each site is set aside. The
    folders' names are those of the classes and of the clients. Images of different sizes need `image_size`.
    """
    root = Path(os.path.expanduser(path))
    parts = list_parts(root)
    dataset = image_dataset(name or root.resolve().name, parts, image_size, test_fraction, seed, normalise)
    sites = sorted({site for listing in parts.values() for site in listing.domains})
    return replace(
        dataset,
        train_clients=dataset.train_domains,
        test_clients=dataset.test_domains,
        client_names=tuple(sites),
    )
