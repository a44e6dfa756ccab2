"""Image data sets in folders: `class/*.png`, `domain/class/*.png`, or either of them below `train` and
`test`.

Hidden files and folders (a name that begins with a dot) are ignored, and so are files that are no images by
their ending. Order is by name, so the same folder gives the same data set on every machine.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from accord.data.federated import Index
from accord.errors import DataError

ENDINGS = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"))
# By contents, whatever the ending: Pillow would hand some other formats, such as EPS, to outside programs.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
GREY = frozenset(("1", "L", "LA"))
COLOUR = frozenset(("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"))


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


def read_images(paths: Sequence[Path], size: int | None) -> npt.NDArray[np.uint8]:
    """Bytes [N, C, H, W], resized to `size` x `size` if given; one channel if all are grey, else three."""
    image = _pillow()
    shapes: dict[tuple[int, int], Path] = {}
    grey = True
    for path in paths:  # headers first: sizes and channels are settled before anything is decoded
        with _opened(image, path) as picture:
            shapes.setdefault(picture.size, path)
            grey = grey and picture.mode in GREY
            if picture.mode not in GREY | COLOUR:
                raise DataError(f"{path} has {picture.mode!r} pixels; save it with 8 bits per channel")
    if size is None and len(shapes) > 1:
        (a, first), (b, second) = list(shapes.items())[:2]
        raise DataError(
            f"images differ in size: {first} is {a[0]} x {a[1]}, {second} is {b[0]} x {b[1]}. "
            "Give image_size to resize all of them"
        )
    width, height = (size, size) if size is not None else next(iter(shapes))
    try:
        out = np.empty((len(paths), 1 if grey else 3, height, width), dtype=np.uint8)
    except MemoryError as error:
        raise DataError(
            f"{len(paths)} images of {width} x {height} do not fit into memory; give a smaller image_size"
        ) from error
    for position, path in enumerate(paths):
        with _opened(image, path) as picture:
            # a palette may hide transparency, which only RGBA can express
            full = picture.convert("RGBA") if picture.mode in ("P", "PA") else picture
            plain = full.convert("L" if grey else "RGB")
            if plain.size != (width, height):
                plain = plain.resize((width, height), image.Resampling.BILINEAR)
            pixels = np.asarray(plain)
        out[position] = pixels[None] if grey else pixels.transpose(2, 0, 1)
    return out


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
        if deep[folder] and _images(folder):
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
        found = _images(folder)
        if not found:
            raise DataError(f"the class folder {folder} holds no images ({', '.join(sorted(ENDINGS))}); delete it")
        rows += [(path, folder.name, domain) for path in found]
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


def _images(root: Path) -> list[Path]:
    return [path for path in _visible(root) if path.suffix.lower() in ENDINGS and os.path.isfile(path)]


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("reading images needs Pillow; install it: pip install 'accord-fl[images]'") from error
    return Image


@contextmanager
def _opened(image: ModuleType, path: Path) -> Iterator[Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", image.DecompressionBombWarning)
            with image.open(path, formats=FORMATS) as picture:
                yield picture
    except DataError:
        raise
    except Exception as error:  # on damaged files Pillow raises nearly every kind of error
        raise DataError(
            f"{path} cannot be read as an image ({error or type(error).__name__}); replace it or delete it"
        ) from error
