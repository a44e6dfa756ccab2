"""Raw samples from files, in the form a model takes them, and its answers as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accord.data.columns import listed
from accord.data.files.images import read_images
from accord.data.files.tables import read_table
from accord.data.inputs import Inputs
from accord.deploy.loaded import Loaded
from accord.errors import ConfigError, DataError
from accord.problems import PROBLEMS

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


class Samples(NamedTuple):
    """Raw samples, what each is called, and remarks on what was left out."""

    raw: Any
    names: list[str]
    notes: list[str]


def read_samples(path: Path, inputs: Inputs, separator: str | None = None) -> Samples:
    """From a CSV or Parquet file (table rows, or arrays of one axis), a .npy file, or images: one, or a folder."""
    if not path.exists():
        raise DataError(f"there is no file or folder {path}")
    if path.suffix.lower() == ".npy":
        return _array(path)
    if inputs.kind == "image":
        return _images(path, inputs.shape)
    if inputs.kind == "tokens" or (inputs.kind == "array" and len(inputs.shape) > 1):
        raise ConfigError(f"samples of shape {inputs.shape} are read from a .npy file, not from {path}")
    words = [column.name for column in inputs.columns if column.kind == "category"]
    frame = read_table(path, words, separator)
    names = [str(number) for number in range(len(frame))]
    if inputs.kind == "array":
        return Samples(frame.to_numpy(), names, [])
    known = {column.name for column in inputs.columns}
    extra = [str(name) for name in frame.columns if str(name) not in known]
    return Samples(frame, names, [f"columns that the model does not read: {listed(extra)}"] if extra else [])


def _array(path: Path) -> Samples:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read as an array of numbers: {error}") from error
    if not isinstance(array, np.ndarray) or not array.ndim:
        raise DataError(f"{path} holds no array of samples")
    return Samples(array, [str(number) for number in range(len(array))], [])


def _images(path: Path, shape: tuple[int, ...]) -> Samples:
    inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in IMAGES) if path.is_dir() else [path]
    if not inside:
        raise DataError(f"there are no images in {path}; known are {', '.join(IMAGES)}")
    channels, height, width = shape
    pixels = read_images(inside, height if height == width else None)
    if pixels.shape[1] == 1 and channels == 3:
        pixels = np.repeat(pixels, 3, axis=1)  # grey pictures, for a network of coloured ones
    names = [str(file.relative_to(path)) if path.is_dir() else file.name for file in inside]
    return Samples(pixels, names, [])


def answers_table(model: Loaded, samples: Samples) -> str:
    """A line for each sample as CSV: what it is called, the answer, and probabilities where there are any."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(_lines(model, samples))
    return text.getvalue()


def _lines(model: Loaded, samples: Samples) -> Iterator[list[Any]]:
    outputs = model.outputs(samples.raw)
    answers = model.answers.words(outputs)
    if PROBLEMS[model.problem].real_labels:
        several = len(model.classes) > 1
        yield ["sample", *(model.classes if several else ["predicted"])]
        rows: Any = answers if several else ([answer] for answer in answers)
    elif model.problem == "tokens":
        yield ["sample", "predicted"]
        rows = ([" ".join(answer)] for answer in answers)
    else:
        likely = model.answers.probabilities(outputs).tolist()
        yield ["sample", "predicted", *(f"p({name})" for name in model.classes)]
        words = ["; ".join(answer) if isinstance(answer, list) else answer for answer in answers]
        rows = ([word, *(f"{p:.6g}" for p in shares)] for word, shares in zip(words, likely, strict=True))
    for name, row in zip(samples.names, rows, strict=True):
        yield [name, *row]
