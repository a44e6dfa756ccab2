"""The GPU's kernels of convolutions in Triton's interpreter, against torch's own.

It multiplies in single precision where a GPU rounds to tf32, and has no bf16: it would multiply the bits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")

# Clients, images, height, width, channels, filters, their rows and columns, padding, stride.
CASES: dict[str, tuple[Any, ...]] = {
    "channels of no power of two": (2, 3, 6, 5, 17, 20, 3, 3, (1, 2), 1),
    "more channels than a tile": (1, 2, 7, 7, 40, 16, 5, 5, (2, 2), 1),
    "more pixels than a tile": (2, 5, 9, 8, 16, 16, 3, 3, (1, 1), 1),
    "more filters than a tile": (1, 2, 4, 4, 16, 130, 1, 1, (0, 0), 1),
    "several pieces": (2, 33, 4, 4, 16, 16, 3, 3, (0, 0), 1),
    "a stride of two": (2, 3, 8, 8, 16, 32, 3, 3, (1, 1), 2),
    "a stride and rows left over": (2, 2, 5, 6, 17, 33, 3, 3, (0, 1), 2),
    "a stride wider than the filter": (1, 2, 9, 8, 16, 16, 1, 1, (0, 0), 3),
    "a stride of three": (2, 2, 10, 8, 16, 16, 5, 4, (2, 1), 3),
    "more padding than the filter sees": (1, 2, 5, 4, 16, 16, 1, 2, (1, 3), 1),
    "and a stride": (1, 2, 5, 4, 16, 16, 2, 1, (3, 2), 2),
    "a neighbour that has diverged": (2, 2, 7, 7, 16, 16, 5, 5, (0, 0), 1),
    "a filter of two rows and three columns": (2, 6, 7, 6, 18, 35, 2, 3, (1, 0), 2),
}
SUMMED = ("usual", "one", "many")  # a filter's gradient, over so many pieces
# Triton is told to interpret before it is imported, so all this is another process's.
INTERPRETED = """
    import json, sys
    from safetensors.torch import load_file, save_file
    from accord.executors.kernels import tiles

    class Noting:
        def __init__(self, kernel):
            self.kernel, self.grids = kernel, []
        def __getitem__(self, grid):
            self.grids.append(grid)
            return self.kernel[grid]

    cases, given, out, pieces = json.loads(sys.argv[1]), load_file(sys.argv[2]), {}, {}
    usual = tiles.PROGRAMS, tiles.FEWEST
    for name, (*_, height, width, _, _, rows, columns, (top, left), stride) in cases.items():
        x, filters, turned, grad = (given[f"{name}/{word}"] for word in ("x", "filters", "turned", "grad"))
        down, right = grad.shape[2:4]
        gathered = rows - 1 - top, columns - 1 - left, 1, stride, height, width
        out[f"{name}/out"] = tiles.images(x, filters, top, left, stride, 1, down, right)
        out[f"{name}/x"] = tiles.images(grad, turned, *gathered)
        kernel = tiles._filters_kernel
        tiles._filters_kernel = noting = Noting(kernel)
        for word, programs, fewest in (("usual", *usual), ("one", 0, usual[1]), ("many", usual[0], 1)):
            tiles.PROGRAMS, tiles.FEWEST = programs, fewest
            out[f"{name}/{word}"] = tiles.filters(x, grad, rows, columns, top, left, stride)
        tiles._filters_kernel = kernel
        pieces[name] = [grid[2] // len(x) for grid in noting.grids]
    save_file(out, sys.argv[3])
    print(json.dumps(pieces))
"""


def drawn(name: str) -> dict[str, Tensor]:
    """Images, filters [K, O, C, k, k], and a gradient for every output."""
    clients, images, height, width, channels, outputs, rows, columns, (top, left), stride = CASES[name]
    down, right = (height + 2 * top - rows) // stride + 1, (width + 2 * left - columns) // stride + 1
    shapes = {
        "x": (clients, images, height, width, channels),
        "weight": (clients, outputs, channels, rows, columns),
        "grad": (clients, images, down, right, outputs),
    }
    random = torch.Generator().manual_seed(3)
    tensors = {word: torch.randn(shape, generator=random) for word, shape in shapes.items()}
    if name == "a neighbour that has diverged":
        tensors["x"][1] = torch.nan
    return tensors


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Tensor], dict[str, list[int]]]:
    """What the kernels give, and in how many pieces of a client they summed its filters' gradients."""
    folder: Path = tmp_path_factory.mktemp("tiles")
    given = {}
    for name in CASES:
        tensors = drawn(name)
        weight = tensors.pop("weight")
        tensors["filters"] = weight.permute(0, 1, 3, 4, 2)
        tensors["turned"] = weight.flip(3, 4).permute(0, 2, 3, 4, 1)
        given.update({f"{name}/{word}": tensor.contiguous() for word, tensor in tensors.items()})
    save_file(given, folder / "given")
    words = [sys.executable, "-c", textwrap.dedent(INTERPRETED), json.dumps(CASES), folder / "given", folder / "found"]
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    ran = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    return load_file(folder / "found"), json.loads(ran.stdout)


@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_torchs_convolutions(name: str, interpreted: Any) -> None:
    found, pieces = interpreted
    tensors = {word: tensor.double() for word, tensor in drawn(name).items()}
    x, weight = (tensors[word].requires_grad_() for word in ("x", "weight"))
    *_, padding, stride = CASES[name]
    outs = [
        functional.conv2d(one.permute(0, 3, 1, 2), own, None, stride, padding)
        for one, own in zip(x, weight, strict=True)
    ]
    out = torch.stack(outs).permute(0, 1, 3, 4, 2)
    grad_x, grad_weight = torch.autograd.grad(out, (x, weight), tensors["grad"])
    sound = slice(1 if name == "a neighbour that has diverged" else None)
    for word, value in {"out": out, "x": grad_x, **dict.fromkeys(SUMMED, grad_weight)}.items():
        mine = found[f"{name}/{word}"]
        assert (mine.shape, mine.dtype) == (value.shape, torch.float32), word
        assert (mine - value)[sound].abs().max() <= 1e-5 * value[sound].abs().max(), word
    usual, one, many = pieces[name]
    assert one == 1 <= usual <= many
    assert usual > 1 or name != "several pieces"
    assert many > 1 or name != "a stride of two"
