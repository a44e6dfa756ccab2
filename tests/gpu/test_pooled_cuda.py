"""On a CUDA device: a convolution, its pooling and ReLU at once give torch's numbers. Run by `make test-gpu`."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from accord.executors.gpu.precision import numerics
from accord.executors.kernels import layers_for, pooled, rows_at_once
from accord.executors.kernels.layers import channels_last

pytestmark = pytest.mark.gpu

# Images, channels, height, width; window's rows and columns, steps, padding.
SHAPES = [
    (500, 64, 32, 32, 3, 3, 2, 2, 0, 0),
    (100, 64, 15, 15, 3, 3, 2, 2, 1, 1),
    (33, 32, 28, 28, 2, 2, 2, 2, 0, 0),
    (7, 1, 9, 13, 3, 2, 3, 1, 0, 1),
    (0, 3, 8, 8, 2, 2, 2, 2, 0, 0),
]
WITHIN = {"fp32": 1e-5, "tf32": 3e-3}


@pytest.fixture(autouse=True)
def with_triton() -> None:
    pytest.importorskip("triton")


@pytest.mark.parametrize("unusual", [False, True], ids=["usual", "NaN"])
@pytest.mark.parametrize("dtype", pooled.PRECISIONS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernel_gives_torchs_numbers(shape: tuple[int, ...], dtype: torch.dtype, unusual: bool) -> None:
    images, channels, height, width, *window = shape
    random = torch.Generator().manual_seed(0)
    x, bias = torch.randn(images, channels, height, width, generator=random), torch.randn(channels, generator=random)
    if unusual:
        x[torch.rand(x.shape, generator=random) < 0.02] = torch.nan
    x, bias = x.to("cuda", dtype), bias.to("cuda", dtype)
    rows, columns, down, right, top, left = window
    seen = functional.max_pool2d(x + bias[:, None, None], (rows, columns), (down, right), (top, left))
    found = pooled.pool(channels_last(x), bias, *window)
    torch.testing.assert_close(found, functional.relu(seen), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("precision", WITHIN)
@pytest.mark.parametrize("channels", [1, 3, 16])
def test_layers_of_a_compiled_run_give_torchs_up_to_rounding(channels: int, precision: str) -> None:
    network = nn.Sequential(
        *(nn.Conv2d(channels, 64, 5, padding=2), nn.MaxPool2d(3, 2), nn.ReLU()),
        *(nn.Conv2d(64, 64, 5, padding=2), nn.MaxPool2d(3, 2), nn.ReLU(), nn.Flatten()),
    ).cuda()
    layers = layers_for("cuda", compiled=True)
    assert layers is not None
    ours, x = layers(copy.deepcopy(network)), torch.randn(100, channels, 32, 32, device="cuda")
    asked: list[tuple[int, ...]] = []
    operator = pooled.pool

    def pool(x: Tensor, bias: Tensor, *window: int) -> Tensor:
        asked.append(window)
        found: Tensor = operator(x, bias, *window)
        return found

    with pytest.MonkeyPatch.context() as patch, torch.no_grad(), rows_at_once():
        patch.setattr(pooled, "pool", pool)
        with numerics("fp32"):
            expected = network(x)
        with numerics(precision):
            found = [ours(x) for _ in range(3)]
    assert len(asked) == 6
    assert all(torch.equal(found[0], again) for again in found)
    assert torch.linalg.norm(found[0] - expected) < WITHIN[precision] * torch.linalg.norm(expected)
