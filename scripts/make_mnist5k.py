"""Make `src/accord/data/embedded/mnist5k.npz`: 5,000 MNIST digits, 400 train and 100 test images of each
digit.

The train part is drawn from MNIST's train files and the test part from its test files, both without
replacement and with a fixed seed. Usage: `python scripts/make_mnist5k.py FOLDER [OUTPUT]`, where FOLDER holds
the four IDX files, raw or gzipped.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from accord.data.files.collection import Places, find
from accord.data.files.contents import read
from accord.data.files.idx import parse_idx
from accord.data.public.mnist import COLLECTION

SEED = 5000
PER_DIGIT = {"train": 400, "test": 100}
# MD5 of the unpacked files; a copy that differs would give other digits under the same name.
PUBLISHED = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


def draw(labels: npt.NDArray[np.uint8], per_digit: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Positions of `per_digit` samples of each digit, in a random order."""
    picked = [rng.choice(np.flatnonzero(labels == digit), per_digit, replace=False) for digit in range(10)]
    return rng.permutation(np.concatenate(picked))


def make(folder: Path, output: Path) -> None:
    """Read the four files in `folder`, draw, and write `output` in one step."""
    files = read(find(COLLECTION, Places((folder,), download=False)))
    for name, expected in PUBLISHED.items():
        found = hashlib.md5(files[name].data.tobytes(), usedforsecurity=False).hexdigest()
        if found != expected:
            raise SystemExit(f"{files[name].where} is not the published file: MD5 {found}, expected {expected}")
    rng = np.random.default_rng(SEED)
    arrays = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        images = parse_idx(files[f"{prefix}-images-idx3-ubyte"], axes=3)
        labels = parse_idx(files[f"{prefix}-labels-idx1-ubyte"], axes=1)
        rows = draw(labels, PER_DIGIT[part], rng)
        arrays[f"{part}_x"], arrays[f"{part}_y"] = images[rows], labels[rows]
    temporary = output.with_name(output.name + ".tmp.npz")
    np.savez_compressed(temporary, allow_pickle=False, **arrays)
    os.replace(temporary, output)
    digest = hashlib.sha256(b"".join(arrays[key].tobytes() for key in sorted(arrays))).hexdigest()
    print(f"{output}: {output.stat().st_size} bytes, SHA-256 of the arrays {digest}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    embedded = Path(__file__).parent.parent / "src" / "accord" / "data" / "embedded"
    parser.add_argument("output", type=Path, nargs="?", default=embedded / "mnist5k.npz")
    arguments = parser.parse_args()
    make(arguments.folder, arguments.output)
