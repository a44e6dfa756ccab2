"""The sample of MNIST that comes with the package, so that everything runs without a download."""

from __future__ import annotations

from importlib import resources

import numpy as np

from accord.data.federated import Dataset
from accord.data.files.collection import Places
from accord.data.files.contents import explained
from accord.data.public.mnist import CLASSES, PIXELS
from accord.data.public.registry import DATASETS, Normalise, image_pools


@DATASETS.add("mnist5k")
def mnist5k(places: Places, *, normalise: Normalise = True) -> Dataset:
    """5,000 MNIST digits that come with Accord: 400 train and 100 test images of each digit."""
    source = resources.files("accord.data") / "embedded" / "mnist5k.npz"
    with explained(source), source.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        train, test = (
            (arrays[f"{part}_x"][:, None], arrays[f"{part}_y"].astype(np.int64)) for part in ("train", "test")
        )
    return image_pools("mnist5k", train, test, CLASSES, PIXELS, normalise)
