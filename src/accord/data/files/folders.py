"""Image data sets in folders: `class/*.png`, `domain/class/*.png`, or either of them below `train` and
`test`.

Hidden files and folders (a name that begins with a dot) are ignored, and so are files that are no images by
their ending. Order is by name, so the same folder gives the same data set on every machine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from accord.data.federated import Dataset, Index, Pool
from accord.data.files.images import read_images
from accord.data.splits import stratified
from accord.errors import DataError

ENDINGS = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"))


@dataclass(frozen=True)
class Listing:
    """Image files and what their folders say about them; `domains` is empty where there are none."""

    paths: tuple[Path, ...]
    classes: tuple[str, ...]  # per file
    domains: tuple[str, ...]  # per file


def list_parts(root: Path) -> dict[str, Listing]:
    """`{"train": ..., "test": ...}` when there are such folders, else `{"all": ...}`."""
    if not os.path.isdir(root):
        raise DataError(f"{root} is not a folder; give the folder that holds one folder of images per class")
    folders = _folders(root)
    names = {folder.name.lower(): folder for folder in folders}
    if not names.keys() & {"train", "test"}:
        return {"all": _list(root)}
    if names.keys() != {"train", "test"} or len(folders) != 2:
        raise DataError(
            f"{root} holds {', '.join(folder.name for folder in folders)}; where there is a train or a test "
            "folder, there must be both and no other. Move the others away (hidden folders are ignored)"
        )
    parts = {part: _list(names[part]) for part in ("train", "test")}
    if bool(parts["train"].domains) != bool(parts["test"].domains):
        raise DataError(f"{root}: train and test must both have domain folders, or neither")
    return parts


def image_dataset(
    name: str,
    parts: dict[str, Listing],
    image_size: int | None,
    test_fraction: float,
    split_seed: int,
    normalise: bool,
) -> Dataset:
    """A data set of the images listed, with the test part that is there, or else a share of each class set aside."""
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
        train, test = stratified(strata, test_fraction, np.random.default_rng(split_seed))
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


def numbered(names: Sequence[str], known: Sequence[str]) -> Index:
    """The position of each name in `known`."""
    position = {name: number for number, name in enumerate(known)}
    return np.array([position[name] for name in names], dtype=np.int64)


def _list(root: Path) -> Listing:
    folders = _folders(root)
    if not folders:
        raise DataError(f"{root} holds no folders; expected one folder of images per class")
    deep = {folder: bool(_folders(folder)) for folder in folders}
    for folder in folders:
        if deep[folder] and pictures_in(folder):
            raise DataError(f"{folder} holds both images and folders; expected class/image or domain/class/image")
    if len(set(deep.values())) > 1:
        odd = next(folder for folder in folders if not deep[folder])
        even = next(folder for folder in folders if deep[folder])
        raise DataError(
            f"{odd} has no folders inside but {even} has; all must be classes, or all must be domains with "
            "one folder per class"
        )
    pairs = [("", folder) for folder in folders]
    if deep[folders[0]]:
        pairs = [(domain.name, folder) for domain in folders for folder in _folders(domain)]
    rows = []
    for domain, folder in pairs:
        pictures = pictures_in(folder)
        if not pictures:
            raise DataError(f"the class folder {folder} holds no images ({', '.join(sorted(ENDINGS))}); delete it")
        rows += [(path, folder.name, domain) for path in pictures]
    domains = tuple(domain for _, _, domain in rows) if pairs[0][0] else ()
    return Listing(tuple(path for path, _, _ in rows), tuple(name for _, name, _ in rows), domains)


def _visible(root: Path) -> list[Path]:
    try:
        return sorted(
            (p for p in root.iterdir() if p.name[0] != "." and p.name != "__MACOSX"),
            key=lambda path: path.name,
        )
    except OSError as error:
        raise DataError(f"{root} cannot be read: {error.strerror}") from error


def _folders(root: Path) -> list[Path]:
    return [path for path in _visible(root) if os.path.isdir(path)]


def pictures_in(root: Path) -> list[Path]:
    """The image files of a folder, by name."""
    return [path for path in _visible(root) if path.suffix.lower() in ENDINGS and os.path.isfile(path)]
