"""Your own images, one folder per class: the data set `folder`."""

from __future__ import annotations

import os
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
    return image_dataset(root.resolve().name, list_parts(root), image_size, test_fraction, split_seed, normalise)
