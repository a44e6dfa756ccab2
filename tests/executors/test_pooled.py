"""A convolution, its pooling and ReLU at once: what torch's layers give, and only where nobody asks for gradients.

The kernel runs in Triton's interpreter, which has no bf16; `tests/gpu/test_pooled_cuda.py` is for that.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from accord.core.model import Model
from accord.executors.kernels import gpu, pooled
from accord.executors.kernels.gpu import GPUSequential, gpu_layers, rows_at_once
from accord.models import MODELS

# Images, channels, height, width; window's rows and columns, steps, padding.
CASES: dict[str, tuple[int, ...]] = {
    "fedufo_cnn's": (3, 5, 9, 9, 3, 3, 2, 2, 0, 0),
    "cifar_cnn's": (2, 4, 8, 8, 3, 3, 2, 2, 1, 1),
    "side by side": (2, 7, 8, 6, 2, 2, 2, 2, 0, 0),
    "more than a program writes": (3, 16, 12, 11, 2, 3, 1, 2, 1, 0),
    "none of a row or column is like another": (1, 3, 7, 10, 3, 2, 3, 1, 0, 1),
    "one channel": (4, 1, 6, 6, 2, 2, 2, 2, 0, 0),
    "no images": (0, 3, 6, 6, 2, 2, 2, 2, 0, 0),
    "NaN": (3, 5, 9, 9, 3, 3, 2, 2, 1, 1),
}
# Triton is told to interpret before it is imported, so all this is another process's.
INTERPRETED = """
    import json, sys
    from safetensors.torch import load_file, save_file
    from accord.executors.kernels import maxima

    cases, given, out = json.loads(sys.argv[1]), load_file(sys.argv[2]), {}
    for name, (_, _, _, _, *window) in cases.items():
        x = given[f"{name}/x"].permute(0, 3, 1, 2)
        out[name] = maxima.pool(x, given[f"{name}/bias"], *window).permute(0, 2, 3, 1).contiguous()
    save_file(out, sys.argv[3])
"""


def drawn(name: str) -> tuple[Tensor, Tensor]:
    """Images with channels last, many of whose pixels are equal, and a bias."""
    images, channels, height, width, *_ = CASES[name]
    random = torch.Generator().manual_seed(len(name))
    x = torch.randint(-4, 4, (images, height, width, channels), generator=random) / 3
    if name == "NaN":
        x[torch.rand(x.shape, generator=random) < 0.05] = torch.nan
        x[0] = -torch.inf
    return x.permute(0, 3, 1, 2), torch.randn(channels, generator=random)


def by_torch(x: Tensor, bias: Tensor, window: tuple[int, ...]) -> Tensor:
    """In the order of a network's layers."""
    rows, columns, down, right, top, left = window
    seen = x + bias[:, None, None]
    return functional.relu(functional.max_pool2d(seen, (rows, columns), (down, right), (top, left)))


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """What the kernel gives."""
    pytest.importorskip("triton")
    folder: Path = tmp_path_factory.mktemp("pooled")
    given: dict[str, Tensor] = {}
    for name in CASES:
        x, bias = drawn(name)
        given |= {f"{name}/x": x.permute(0, 2, 3, 1).contiguous(), f"{name}/bias": bias}
    save_file(given, folder / "given")
    files = str(folder / "given"), str(folder / "found")
    words = [sys.executable, "-c", textwrap.dedent(INTERPRETED), json.dumps(CASES), *files]
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    ran = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    return load_file(folder / "found")


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_gives_torchs_numbers(name: str, interpreted: Any) -> None:
    x, bias = drawn(name)
    same(interpreted[name].permute(0, 3, 1, 2), by_torch(x, bias, CASES[name][4:]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_the_operator_gives_torchs_numbers(name: str, dtype: torch.dtype) -> None:
    x, bias = (tensor.to(dtype) for tensor in drawn(name))
    found = pooled.pool(x, bias, *CASES[name][4:])
    same(found, by_torch(x, bias, CASES[name][4:]))
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", ["cifar_cnn's", "none of a row or column is like another"])
def test_the_operator_can_be_traced(name: str) -> None:
    x, bias = drawn(name)
    torch.library.opcheck(pooled.pool, (x, bias, *CASES[name][4:]), test_utils=("test_schema", "test_faketensor"))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """As if the kernel were for images on a CPU; what it was asked for."""
    asked: list[tuple[int, ...]] = []

    def pool(x: Tensor, bias: Tensor, *window: int) -> Tensor:
        asked.append(window)
        found: Tensor = operator(x, bias, *window)
        return found

    operator = pooled.pool
    monkeypatch.setattr(pooled, "suits", lambda x: x.dim() == 4)
    monkeypatch.setattr(pooled, "pool", pool)
    with rows_at_once():
        yield asked


WINDOWS = {
    "fedufo_cnn": [(3, 3, 2, 2, 0, 0)] * 2,
    "cifar_cnn": [(3, 3, 2, 2, 1, 1)] * 2,
    "mcmahan_cnn": [(2, 2, 2, 2, 0, 0)] * 2,
    "report_cnn": [(2, 2, 2, 2, 0, 0)],  # after its second convolution maps are dropped, when it is trained
    "fedbr_cnn": [],
}


@pytest.mark.parametrize("name", WINDOWS)
def test_networks_answer_the_same(name: str, here: list[tuple[int, ...]], float64: None) -> None:
    shape = (3, 32, 32) if name in ("fedufo_cnn", "cifar_cnn") else (1, 28, 28)
    network = MODELS[name](shape, 10)
    plain, ours = Model(network), Model(network, layers=gpu_layers)
    x = torch.randn(5, *shape)
    with torch.no_grad():
        expected, found = (model.reference(*model.init(), x) for model in (plain, ours))
        for left, right in zip(expected, found, strict=True):
            torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)
    assert here == WINDOWS[name]


def row(**pool: Any) -> list[nn.Module]:
    return [nn.Conv2d(2, 3, 3, padding=1), nn.MaxPool2d(2, **pool), nn.ReLU()]


def test_gradients_are_torchs(here: list[tuple[int, ...]]) -> None:
    network = gpu_layers(nn.Sequential(*row()))
    network(torch.randn(2, 2, 6, 6)).sum().backward()
    assert all(value.grad is not None for value in network.parameters())
    assert not here


class OwnReLU(nn.ReLU):
    """Somebody's own."""


@pytest.mark.parametrize(
    "layers",
    [
        row(ceil_mode=True),
        row(dilation=2),
        [nn.Conv2d(2, 3, 3, bias=False), *row()[1:]],
        [*row()[:2], OwnReLU()],
        [row()[0], nn.AvgPool2d(2), nn.ReLU()],
        [row()[0], nn.ReLU(), nn.MaxPool2d(2)],
        row()[:2],
    ],
    ids=["ceil", "dilation", "no bias", "a layer of one's own", "mean", "another order", "no ReLU"],
)
def test_other_rows_are_torchs(layers: list[nn.Module], here: list[tuple[int, ...]]) -> None:
    network = nn.Sequential(*layers)
    x = torch.randn(2, 2, 9, 9)
    with torch.no_grad():
        expected = copy.deepcopy(network)(x)
        same(gpu_layers(network)(x), expected)
    assert not here


def test_a_layer_that_is_watched_is_called(here: list[tuple[int, ...]]) -> None:
    network = nn.Sequential(*row())
    seen: list[Tensor] = []
    network[1].register_forward_hook(lambda module, given, out: seen.append(out))
    with torch.no_grad():
        gpu_layers(network)(torch.randn(2, 2, 6, 6))
    assert [len(out) for out in seen] == [2]
    assert not here


def test_rows_are_torchs_unless_wanted(here: list[tuple[int, ...]]) -> None:
    network, x = gpu_layers(nn.Sequential(*row())), torch.randn(2, 2, 6, 6)
    with torch.no_grad():
        with rows_at_once(False):
            network(x)
        assert not here
        network(x)
    assert here == [(2, 2, 2, 2, 0, 0)]


def test_clients_of_a_stack_are_torchs(here: list[tuple[int, ...]]) -> None:
    network = gpu_layers(nn.Sequential(*row()))
    with torch.no_grad():
        stacked = torch.vmap(network)(torch.randn(4, 2, 2, 6, 6))
    assert stacked.shape == (4, 2, 3, 3, 3)
    assert not here


def test_what_a_stack_has_in_common_is_asked_at_once(here: list[tuple[int, ...]]) -> None:
    """Traced for a stack, a frozen model on samples that are everybody's is an operator like the others."""
    from torch.fx.experimental.proxy_tensor import make_fx

    network = gpu_layers(nn.Sequential(*row()))
    x = torch.randn(2, 2, 6, 6)

    def asked(x: Tensor, factors: Tensor) -> Tensor:
        with torch.no_grad():
            said: Tensor = network(x)
        found: Tensor = torch.vmap(lambda factor: (factor * said).sum())(factors)
        return found

    traced = make_fx(asked)(torch.zeros_like(x), torch.zeros(3))
    same(traced(x, torch.arange(3.0)), asked(x, torch.arange(3.0)))
    assert "accord.pool" in traced.code


@pytest.mark.parametrize(
    ("change", "suits"),
    [
        ({}, True),
        ({"dtype": torch.bfloat16}, True),
        ({"is_cuda": False}, False),
        ({"dim": lambda: 3}, False),
        ({"dtype": torch.float64}, False),
    ],
    ids=["images on a GPU", "bf16", "on a CPU", "a single image", "double"],
)
def test_what_the_kernel_is_for(change: dict[str, Any], suits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x: Any = SimpleNamespace(**{"is_cuda": True, "dim": lambda: 4, "dtype": torch.float32, **change})
    monkeypatch.setattr(pooled, "find_spec", lambda name: name)
    assert pooled.suits(x) == suits
    monkeypatch.setattr(pooled, "find_spec", lambda name: None)
    assert not pooled.suits(x), "without Triton"


def test_sequences_inside_others_are_changed() -> None:
    network = nn.Sequential(nn.Sequential(*row()), nn.Flatten())
    assert [type(module) for module in gpu_layers(network).modules()][:2] == [GPUSequential] * 2
    assert tuple(type(module) for module in network[0].modules())[1:] == gpu.ROW
