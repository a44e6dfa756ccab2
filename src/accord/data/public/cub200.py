"""CUB-200-2011, birds of 200 species, and a reduced copy of its first fifty."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from accord.data.federated import Dataset
from accord.data.files.collection import Places
from accord.data.files.folders import Listing, image_dataset, list_parts
from accord.data.files.identities import found_root, listed
from accord.data.files.packed import packed_dataset
from accord.data.public.registry import DATASETS, ImageSize, Normalise
from accord.errors import DataError

SOURCE = "https://www.vision.caltech.edu/datasets/cub_200_2011"


@DATASETS.add("cub200")
def cub200(places: Places, *, image_size: ImageSize = 224, normalise: Normalise = True) -> Dataset:
    """Birds of 200 species, 5,994 + 5,794 photographs (Wah et al. 2011); folders of your own."""
    root = found_root(places, "cub200", ("CUB_200_2011",), ("images",), SOURCE)
    lists = ("images", "image_class_labels", "train_test_split")
    names, species, learned = (_numbered(root / f"{name}.txt") for name in lists)
    if names.keys() != species.keys() or names.keys() != learned.keys():
        raise DataError(f"{root}: images.txt, image_class_labels.txt and train_test_split.txt number other images")
    if not all(word.isdecimal() for word in species.values()) or not set(learned.values()) <= {"0", "1"}:
        raise DataError(f"{root}: image_class_labels.txt must hold numbers of species, train_test_split.txt 1 or 0")
    parts: dict[str, Listing] = {}
    for part, word in (("train", "1"), ("test", "0")):
        chosen = [number for number in names if learned[number] == word]
        paths = tuple(_below(root / "images", names[number]) for number in chosen)
        parts[part] = Listing(paths, tuple(f"{int(species[number]):03d}" for number in chosen), ())
    return image_dataset("cub200", parts, image_size, 0.5, 0, normalise)


@DATASETS.add("cub50")
def cub50(places: Places, *, image_size: ImageSize = None, normalise: Normalise = True) -> Dataset:
    """The first 50 species of CUB-200-2011, boxes of 64 x 64: `train|test/class/image`, or `cub50.safetensors`."""
    note = "first 50 of 200 classes, 64 x 64 copy"
    packed = packed_dataset(places, "cub50", normalise) if image_size is None else None
    if packed is None:
        root = found_root(places, "cub50", (), ("train", "test"), SOURCE)
        packed = image_dataset("cub50", list_parts(root), image_size, 0.5, 0, normalise)
    return replace(packed, note=note)


def _numbered(file: Path) -> dict[str, str]:
    """Lines of a number and a word."""
    pairs = [line.split(maxsplit=1) for line in listed(file)]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise DataError(f"{file}: expected lines of a number and a word, such as '1 001.Name/Name_0046_18.jpg'")
    return dict(pairs)


def _below(folder: Path, name: str) -> Path:
    """A file named in a list, which may not lead out of the folder."""
    if ".." in Path(name).parts or Path(name).is_absolute():
        raise DataError(f"{name!r} in a list of {folder} leads out of it")
    return folder / name
