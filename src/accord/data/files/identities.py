"""Pictures of identities by cameras, as re-identification has them: lists of files, and the data set made of them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from accord.data.federated import Dataset, Pool, Search
from accord.data.files.collection import Places
from accord.data.files.folders import pictures_in
from accord.data.files.images import read_images
from accord.errors import DataError


class Sighting(NamedTuple):
    """A picture: who is on it, and which camera took it."""

    path: Path
    identity: str
    camera: int


@dataclass(frozen=True)
class Sightings:
    """Of the three parts: those to learn from, those that are looked for, those among which they are looked for."""

    train: Sequence[Sighting]
    query: Sequence[Sighting]
    gallery: Sequence[Sighting]


def found_root(places: Places, name: str, also: Sequence[str], folders: Sequence[str], source: str) -> Path:
    """The first place that holds all `folders`; DataError says where they were looked for."""
    looked = places.candidates(name, *also)
    root = next((place for place in looked if all(os.path.isdir(place / folder) for folder in folders)), None)
    if root is None:
        raise DataError(
            f"{name}: its pictures are not on this machine, and may not be passed on, so nothing is downloaded.\n"
            f"Looked in: {', '.join(map(str, looked))}\n"
            f"Ask for them at {source} and put the folders {', '.join(folders)} into {looked[0]}"
        )
    return root


def by_name(folder: Path, pattern: re.Pattern[str], junk: Sequence[str] = ()) -> list[Sighting]:
    """All pictures of a folder whose names say who and where; DataError for a name that does not."""
    return [seen for path in pictures_in(folder) if (seen := named(path, pattern)).identity not in junk]


def named(path: Path, pattern: re.Pattern[str]) -> Sighting:
    """What a file's name says: group 1 the identity, group 2 the camera."""
    match = pattern.match(path.name)
    if match is None:
        raise DataError(f"{path}: its name does not say whose picture it is and by which camera, as {pattern.pattern}")
    return Sighting(path, match[1], int(match[2]))


def listed(file: Path) -> list[str]:
    """The lines of a list, without empty ones."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as a list of files: {error}") from error
    return [line.strip() for line in lines if line.strip()]


def search_dataset(name: str, parts: Sightings, size: tuple[int, int], normalise: bool) -> Dataset:
    """Classes are the identities: those that are trained first, then those that occur in the search alone.

    The latter have outputs that nothing is trained for: what is judged is the search by features.
    """
    for part in ("train", "query", "gallery"):
        if not getattr(parts, part):
            raise DataError(f"{name}: its part {part} holds no pictures")
    known = sorted({one.identity for one in parts.train})
    tested = [*parts.query, *parts.gallery]
    classes = (*known, *sorted({one.identity for one in tested} - set(known)))
    number = {identity: place for place, identity in enumerate(classes)}

    def labels(some: Sequence[Sighting]) -> torch.Tensor:
        return torch.tensor([number[one.identity] for one in some])

    paths = [one.path for one in (*parts.train, *tested)]
    x = torch.from_numpy(read_images(paths, size))
    half = (0.5,) * x.shape[1] if normalise else ()
    first = len(parts.train)
    return Dataset(
        name,
        Pool(x[:first], labels(parts.train), half, half),
        Pool(x[first:], labels(tested), half, half),
        classes,
        search=Search(len(parts.query), np.array([one.camera for one in tested], dtype=np.int64)),
        note=f"resized to {size[0]} x {size[1]}",
    )
