"""The letters of EMNIST: files, address, and the MD5 sum in common use."""

from __future__ import annotations

import string

import numpy as np

from accord.data.federated import Dataset
from accord.data.files.collection import Collection, Places
from accord.data.files.download import Remote
from accord.data.files.idx import read_idx
from accord.data.public.registry import DATASETS, Normalise, image_pools

CLASSES = tuple(string.ascii_uppercase)
PIXELS = ((0.1722,), (0.3309,))
COLLECTION = Collection(
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


@DATASETS.add("emnist_letters")
def emnist_letters(places: Places, *, normalise: Normalise = True) -> Dataset:
    """Handwritten letters, 124,800 + 20,800 images, both cases merged (Cohen et al., arXiv:1702.05373)."""
    parts = read_idx(COLLECTION, places, lowest=1, classes=26)
    # the files hold each image column by column
    train, test = ((np.ascontiguousarray(x.swapaxes(2, 3)), y) for x, y in parts)
    return image_pools("emnist_letters", train, test, CLASSES, PIXELS, normalise)
