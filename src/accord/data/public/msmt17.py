"""MSMT17: people seen by fifteen cameras."""

from __future__ import annotations

import re
from pathlib import Path

from accord.data.federated import Dataset
from accord.data.files.collection import Places
from accord.data.files.identities import Sighting, Sightings, found_root, listed, named, search_dataset
from accord.data.public.registry import DATASETS, Height, Normalise, Width
from accord.errors import DataError

FOLDERS = ("train", "test")
NAME = re.compile(r"(\d+)_\d+_(\d+)_")


@DATASETS.add("msmt17")
def msmt17(places: Places, *, height: Height = 256, width: Width = 128, normalise: Normalise = True) -> Dataset:
    """People by 15 cameras, 1,041 + 3,060 identities, 126,441 pictures (Wei et al., CVPR 2018); folders of your own.

    Identities of `list_train.txt` and `list_val.txt` are trained; those of the search are others, numbered anew from 0.
    """
    root = found_root(places, "msmt17", ("MSMT17", "MSMT17_V1"), FOLDERS, "https://www.pkuvmc.com/dataset.html")
    held = _list(root, "val", "train") if (root / "list_val.txt").is_file() else []
    train = [*_list(root, "train", "train"), *held]
    parts = Sightings(train, _list(root, "query", "test"), _list(root, "gallery", "test"))
    return search_dataset("msmt17", parts, (height, width), normalise)


def _list(root: Path, part: str, folder: str) -> list[Sighting]:
    """Lines such as `0000/0000_000_01_0303morning_0015_0.jpg 0`; the second word is the identity."""
    found = []
    for line in listed(root / f"list_{part}.txt"):
        words = line.split()
        if len(words) != 2 or not words[1].isdecimal() or ".." in words[0] or Path(words[0]).is_absolute():
            raise DataError(f"{root / f'list_{part}.txt'}: {line!r} is no file and identity, such as 0000/NAME.jpg 0")
        seen = named(root / folder / words[0], NAME)
        # Numbers begin anew in the test part: its identities are other people.
        found.append(seen._replace(identity=f"{folder}-{int(words[1]):04d}"))
    return found
