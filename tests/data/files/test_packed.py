"""Images packed into one file, and what a damaged one is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from accord.data.federated import Dataset, Pool
from accord.data.files.collection import Places
from accord.data.files.packed import pack, packed_dataset
from accord.errors import DataError


def pictures(channels: int = 3) -> Dataset:
    train = Pool(
        torch.arange(4 * channels * 6, dtype=torch.uint8).reshape(4, channels, 2, 3), torch.tensor([0, 1, 1, 0])
    )
    test = Pool(train.x[:2] + 1, torch.tensor([1, 0]))
    return Dataset("birds", train, test, ("wren", "crow"))


@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_packed_comes_back(tmp_path: Path, channels: int) -> None:
    data = pictures(channels)
    places = Places((tmp_path / "none", tmp_path))
    assert packed_dataset(places, "birds", True) is None
    assert pack(data, tmp_path) == tmp_path / "birds.safetensors"
    plain, normal = packed_dataset(places, "birds", False), packed_dataset(places, "birds", True)
    assert plain is not None
    assert normal is not None
    assert (plain.name, plain.classes) == ("birds", ("wren", "crow"))
    assert (plain.train.mean, plain.train.std, plain.test.mean) == ((), (), ())
    half = (0.5,) * channels
    assert (normal.train.mean, normal.train.std, normal.test.mean, normal.test.std) == (half, half, half, half)
    for mine, theirs in ((plain.train, data.train), (plain.test, data.test)):
        assert torch.equal(mine.x, theirs.x)
        assert torch.equal(mine.y, theirs.y)
        assert mine.y.dtype == torch.int64
    (tmp_path / "birds").mkdir()
    pack(pictures(channels), tmp_path / "birds")
    assert packed_dataset(places, "birds", True) is not None


def test_only_bytes_are_packed(tmp_path: Path) -> None:
    data = pictures()
    real = Dataset("birds", Pool(data.train.x.float(), data.train.y), data.test, data.classes)
    with pytest.raises(DataError, match=r"birds holds torch\.float32, and only byte images are packed"):
        pack(real, tmp_path)
    assert list(tmp_path.iterdir()) == []


GOOD: dict[str, torch.Tensor] = {
    "train_x": torch.zeros(2, 1, 2, 2, dtype=torch.uint8),
    "train_y": torch.zeros(2, dtype=torch.int32),
    "test_x": torch.zeros(1, 1, 2, 2, dtype=torch.uint8),
    "test_y": torch.zeros(1, dtype=torch.int32),
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"train_x": torch.zeros(2, 1, 2, 2)}, "must hold byte images"),
        ({"test_x": torch.zeros(1, 1, 2, 2)}, "must hold byte images"),
        ({"train_x": torch.zeros(2, 4, dtype=torch.uint8)}, "must hold byte images"),
        ({"test_x": torch.zeros(1, 2, 2, dtype=torch.uint8)}, "must hold byte images"),
        ({"train_y": torch.zeros(3, dtype=torch.int64)}, "and a label for each; pack them again"),
        ({"test_y": torch.zeros(2, dtype=torch.int64)}, "and a label for each; pack them again"),
        ({"test_y": None}, "holds no packed images"),
    ],
    ids=range(8),
)
def test_files_that_hold_something_else_are_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    tensors = {name: tensor for name, tensor in {**GOOD, **change}.items() if tensor is not None}
    path = tmp_path / "birds.safetensors"
    save_file(tensors, path, metadata={"classes": json.dumps(["a", "b"])})
    if not words:
        found = packed_dataset(Places((tmp_path,)), "birds", True)
        assert found is not None
        assert (found.classes, found.train.y.dtype) == (("a", "b"), torch.int64)
        return
    with pytest.raises(DataError, match=words):
        packed_dataset(Places((tmp_path,)), "birds", True)


def test_files_without_names_and_files_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "birds.safetensors"
    save_file(GOOD, path)
    with pytest.raises(DataError, match="holds no packed images"):
        packed_dataset(Places((tmp_path,)), "birds", True)
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="holds no packed images"):
        packed_dataset(Places((tmp_path,)), "birds", True)
