"""VeRi-776: vehicles seen by twenty cameras."""

from __future__ import annotations

import re
from pathlib import Path

from accord.data.federated import Dataset
from accord.data.files.collection import Places
from accord.data.files.identities import Sighting, Sightings, by_name, found_root, listed, named, search_dataset
from accord.data.public.registry import DATASETS, Height, Normalise, Width
from accord.errors import DataError

PARTS = ("train", "query", "test")
NAME = re.compile(r"(\d+)_c(\d+)_")


@DATASETS.add("veri776")
def veri776(places: Places, *, height: Height = 256, width: Width = 256, normalise: Normalise = True) -> Dataset:
    """Vehicles by twenty cameras, 576 + 200 identities, 51,035 pictures (Liu et al., ECCV 2016); folders of your own.

    Parts are the lists `name_train.txt`, `name_query.txt`, `name_test.txt`, or all pictures of the folders without one.
    """
    folders = [f"image_{part}" for part in PARTS]
    root = found_root(places, "veri776", ("VeRi", "VeRi-776"), folders, "https://vehiclereid.github.io/VeRi")
    return search_dataset("veri776", Sightings(*(_part(root, part) for part in PARTS)), (height, width), normalise)


def _part(root: Path, part: str) -> list[Sighting]:
    folder, lines = root / f"image_{part}", root / f"name_{part}.txt"
    if not lines.is_file():
        return by_name(folder, NAME)
    names = listed(lines)
    for name in names:
        if "/" in name or not (folder / name).is_file():
            raise DataError(f"{lines} names {name!r}, which is no picture of {folder}")
    return [named(folder / name, NAME) for name in names]
