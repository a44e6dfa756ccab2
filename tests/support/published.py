"""Tiny data sets in the files they are published in, to be damaged."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image

import accord
from accord.data.federated import Dataset
from accord.data.files.idx import MNIST_FILES
from accord.data.public.cifar import CIFAR10
from accord.data.public.emnist_letters import COLLECTION as LETTERS

RNG = np.random.default_rng(0)


def idx(array: Any) -> bytes:
    shape = b"".join(length.to_bytes(4, "big") for length in array.shape)
    return bytes((0, 0, 8, array.ndim)) + shape + array.astype(np.uint8).tobytes()


def idx_pair(count: int, lowest: int = 0) -> tuple[bytes, bytes]:
    return idx(RNG.integers(0, 256, (count, 28, 28))), idx(lowest + np.arange(count) % 10)


MNIST = dict(zip(MNIST_FILES, (*idx_pair(12), *idx_pair(6)), strict=True))
EMNIST = dict(zip(LETTERS.files, (*idx_pair(12, 1), *idx_pair(6, 1)), strict=True))
RECORDS = RNG.integers(0, 256, (6, 3, 3073))
RECORDS[:, :, 0] %= 10
CIFAR = {name: RECORDS[n].astype(np.uint8).tobytes() for n, name in enumerate(CIFAR10.files)}


def plain_mnist() -> dict[str, bytes]:
    return {f"mnist/{name}": data for name, data in MNIST.items()}


def packed_mnist() -> dict[str, bytes]:
    return {f"mnist/{name}.gz": gzip.compress(data, mtime=0) for name, data in MNIST.items()}


def plain_cifar() -> dict[str, bytes]:
    return {f"cifar10/{CIFAR10.inside}/{name}": data for name, data in CIFAR.items()}


def tar(kind: str) -> Callable[[], dict[str, bytes]]:
    def made() -> dict[str, bytes]:
        target = io.BytesIO()
        with tarfile.open(fileobj=target, mode=f"w:{kind}") as archive:  # type: ignore[call-overload]
            for name, data in CIFAR.items():
                member = tarfile.TarInfo(f"{CIFAR10.inside}/{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return {f"cifar10/{CIFAR10.archive}": target.getvalue()}

    return made


def letters() -> dict[str, bytes]:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in EMNIST.items():
            archive.writestr(f"{LETTERS.inside}/{name}.gz", gzip.compress(data, mtime=0))
    return {f"emnist_letters/{LETTERS.archive}": target.getvalue()}


def pictures() -> dict[str, bytes]:
    files = {}
    for number in range(8):
        target = io.BytesIO()
        Image.fromarray(RNG.integers(0, 256, (9, 9, 3)).astype(np.uint8)).save(target, "PNG")
        files[f"mine/{number % 2}/{number}.png"] = target.getvalue()
    return files


def embedded() -> dict[str, bytes]:
    target = io.BytesIO()
    arrays = {f"{part}_x": RNG.integers(0, 256, (20, 28, 28)).astype(np.uint8) for part in ("train", "test")}
    np.savez_compressed(target, **arrays, **{f"{part}_y": np.arange(20) % 10 for part in ("train", "test")})
    return {"embedded/mnist5k.npz": target.getvalue()}


@contextmanager
def at(folder: Path) -> Iterator[None]:
    """The sample that comes with the package is looked for in `folder`."""
    with mock.patch("accord.data.public.mnist5k.resources.files", return_value=folder):
        yield


def load(name: str, folder: Path, **options: Any) -> Dataset:
    with at(folder):
        return accord.load_dataset(name, folder, download=False, **options)


# name: the data set, its files, whether they carry checksums
KINDS: dict[str, tuple[str, dict[str, bytes], bool]] = {
    "idx": ("mnist", plain_mnist(), False),
    "idx.gz": ("mnist", packed_mnist(), True),
    "cifar": ("cifar10", plain_cifar(), False),
    **{f"cifar.tar.{kind}": ("cifar10", tar(kind)(), True) for kind in ("gz", "bz2", "xz")},
    "cifar.tar": ("cifar10", tar("")(), False),
    "letters.zip": ("emnist_letters", letters(), True),
    "png": ("folder", pictures(), True),
    "npz": ("mnist5k", embedded(), True),
}
