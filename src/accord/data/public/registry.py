"""The registry of data sets, and what their loaders share: options, and pools of images with known moments."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Annotated

import torch

from accord.data.federated import Dataset, Pool
from accord.data.files.collection import Places
from accord.data.files.contents import Arrays
from accord.data.files.download import Progress
from accord.settings import NOT_NEGATIVE, AtLeast, Range, Registry

Pixels = tuple[tuple[float, ...], tuple[float, ...]]  # mean and deviation per channel, pixels in [0, 1]

Normalise = Annotated[bool, "subtract the train pixels' mean and divide by their deviation"]
ImageSize = Annotated[int | None, AtLeast(1), "resize all images to this height and width"]
Height = Annotated[int, AtLeast(1), "height all pictures are resized to"]
Width = Annotated[int, AtLeast(1), "width all pictures are resized to"]
TestFraction = Annotated[float, Range(above=0, below=1), "test share where no test part is given"]
SplitSeed = Annotated[int, NOT_NEGATIVE, "seed of that split"]

DATASETS: Registry[Callable[..., Dataset]] = Registry("dataset")


def load_dataset(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    progress: Progress | None = None,
    task: str = "auto",
    **options: object,
) -> Dataset:
    """The data set called `name`, from disk or, if `download`, from its public address.

    `progress(file, bytes_so_far, bytes_in_all)` is called while a file arrives. `task` is for data whose labels can be
    read in several ways, as a table's can. Other keyword arguments are
    options of the data set, such as `normalise=False`, or `path` and `image_size` for `folder`.
    """
    loader = DATASETS[name]
    given = {key: os.fspath(value) if isinstance(value, os.PathLike) else value for key, value in options.items()}
    if "task" in inspect.signature(loader).parameters:
        given["task"] = task
    return loader(Places.usual(data_dir, download, progress), **given)


def image_pools(
    name: str, train: Arrays, test: Arrays, classes: tuple[str, ...], pixels: Pixels, normalise: bool
) -> Dataset:
    """A data set of byte images and their labels, with the moments of its pixels if it is to be normalised."""
    mean, std = pixels if normalise else ((), ())
    first, second = (Pool(torch.from_numpy(x), torch.from_numpy(y), mean, std) for x, y in (train, test))
    return Dataset(name, first, second, classes)
