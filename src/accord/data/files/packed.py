"""Images that were decoded before, in one safetensors file: for machines that have no Pillow.

`pack(accord.data.load_dataset("cub50"), "FOLDER")` writes FOLDER/cub50.safetensors with train_x, train_y, test_x,
test_y and the names of the classes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from accord.data.federated import Dataset, Pool
from accord.data.files.collection import Places
from accord.errors import DataError

NAMES = ("train_x", "train_y", "test_x", "test_y")


def pack(dataset: Dataset, folder: str | os.PathLike[str]) -> Path:
    """The pools of byte images as they are."""
    tensors = (dataset.train.x, dataset.train.y, dataset.test.x, dataset.test.y)
    if dataset.train.x.dtype != torch.uint8:
        raise DataError(f"{dataset.name} holds {dataset.train.x.dtype}, and only byte images are packed")
    path = Path(folder) / f"{dataset.name}.safetensors"
    save_file(
        {name: tensor.contiguous() for name, tensor in zip(NAMES, tensors, strict=True)},
        path,
        metadata={"classes": json.dumps(dataset.classes)},
    )
    return path


def packed_dataset(places: Places, name: str, normalise: bool) -> Dataset | None:
    """What was packed under that name; None where no place has it."""
    path = next((p for place in places.candidates(name) if (p := place / f"{name}.safetensors").is_file()), None)
    if path is None:
        return None
    try:
        with safe_open(path, framework="pt") as file:
            train_x, train_y, test_x, test_y = (file.get_tensor(tensor) for tensor in NAMES)
            classes = tuple(str(one) for one in json.loads((file.metadata() or {})["classes"]))
    except (SafetensorError, KeyError, ValueError, TypeError, OSError) as error:
        raise DataError(f"{path} holds no packed images ({error}); pack them again") from error
    wrong = [t for t in (train_x, test_x) if t.dtype != torch.uint8 or t.dim() != 4]
    if wrong or len(train_x) != len(train_y) or len(test_x) != len(test_y):
        raise DataError(f"{path} must hold byte images [N, C, H, W] and a label for each; pack them again")
    half = (0.5,) * train_x.shape[1] if normalise else ()
    return Dataset(name, Pool(train_x, train_y.long(), half, half), Pool(test_x, test_y.long(), half, half), classes)
