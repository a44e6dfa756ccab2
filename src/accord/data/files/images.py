"""Pictures as bytes: one array of all of them, of one size and with the same channels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from accord.errors import DataError

# By contents, whatever the ending: Pillow would hand some other formats, such as EPS, to outside programs.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
GREY = frozenset(("1", "L", "LA"))
COLOUR = frozenset(("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"))


def read_images(paths: Sequence[Path], size: int | tuple[int, int] | None) -> npt.NDArray[np.uint8]:
    """Bytes [N, C, H, W], resized to `size` (a square, or height and width) if given; one channel if all are grey,
    else three."""
    image = _pillow()
    shapes: dict[tuple[int, int], Path] = {}
    grey = True
    for path in paths:  # headers first: sizes and channels are settled before anything is decoded
        with _opened(image, path) as picture:
            shapes.setdefault(picture.size, path)
            grey = grey and picture.mode in GREY
            if picture.mode not in GREY | COLOUR:
                raise DataError(f"{path} has {picture.mode!r} pixels; save it with 8 bits per channel")
            if picture.format == "PNG":
                picture.verify()  # its checksums, which Pillow does not look at when it decodes
    if size is None and len(shapes) > 1:
        (a, first), (b, second) = list(shapes.items())[:2]
        raise DataError(
            f"images differ in size: {first} is {a[0]} x {a[1]}, {second} is {b[0]} x {b[1]}. "
            "Give image_size to resize all of them"
        )
    if size is None:
        width, height = next(iter(shapes))
    else:
        height, width = (size, size) if isinstance(size, int) else size
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
