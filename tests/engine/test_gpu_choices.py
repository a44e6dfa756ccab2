"""What depends on a GPU's memory and on many clients side by side, worked out without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accord.core import optim
from accord.core.optim import OPTIMIZERS, SGD, Adam
from accord.engine import build
from accord.errors import ConfigError
from accord.executors.gpu.batched import Batched
from accord.executors.gpu.lanes import Lanes


def pools(*sizes: int, dtype: torch.dtype = torch.uint8, transform: Any = None) -> Any:
    train, test = (SimpleNamespace(x=torch.zeros(size, 2, dtype=dtype)) for size in sizes)
    return SimpleNamespace(train_pool=train, test_pool=test, transform=transform)


def test_samples_stay_on_the_gpu_if_they_take_a_tenth_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 4000))
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert build.fits(pools(30, 20), gpu)  # 60 + 40 bytes
    assert not build.fits(pools(30, 21), gpu)
    assert not build.fits(pools(30, 20, dtype=torch.float32), gpu)
    assert build.fits(pools(30, 20, dtype=torch.float32), gpu, share=0.4)
    assert not build.fits(pools(1, 1), cpu)
    assert not build.fits(pools(1, 1, transform=len), gpu), "every client sees them otherwise"


def test_a_gpu_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [build.choose_device(name).type for name in ("auto", "cpu", "cuda")] == ["cuda", "cpu", "cuda"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert [build.choose_device(name).type for name in ("auto", "cpu")] == ["cpu", "cpu"]
    with pytest.raises(ConfigError, match="torch sees no GPU"):
        build.choose_device("cuda")


@pytest.mark.parametrize(
    ("asked", "limit", "waiting", "size"),
    [(4, None, 10, 4), (4, None, 8, 4), (4, None, 9, 3), (4, 3, 7, 3), (4, 3, 2, 2), (8, None, 1, 1), (5, None, 6, 3)],
)
def test_blocks_are_nearly_equal(asked: int, limit: int | None, waiting: int, size: int) -> None:
    """Ten clients in blocks of at most four are 4 + 3 + 3."""
    limits = {} if limit is None else {"train": limit}
    fake: Any = SimpleNamespace(recorder=SimpleNamespace(cuda=False), limit=limits, asked=asked)
    assert Batched._block_size(fake, "train", waiting) == size
    fake.recorder.cuda = True
    assert Batched._block_size(fake, "train", waiting) == (1 if limit is None else size)


@pytest.mark.parametrize(
    ("known", "active", "loaded", "steps", "size"),
    [
        ([], 3, 8, 5, 8),  # nothing recorded, few steps: all that are loaded
        ([4, 8], 3, 8, 5, 4),  # what is recorded and holds them, the smallest
        ([2], 3, 8, 5, 8),
        ([9], 3, 8, 5, 8),
        ([8], 8, 8, 5, 8),
        ([], 3, 12, 17, 3),  # many steps: halved while half would do: 12, 6, 3
        ([], 3, 13, 17, 4),  # 13, 7, 4
        ([], 3, 12, 16, 12),
        ([], 4, 8, 17, 4),
        ([], 5, 8, 17, 8),
    ],
)
def test_lanes_that_step_together(known: list[int], active: int, loaded: int, steps: int, size: int) -> None:
    fake: Any = SimpleNamespace(lanes=[None] * 12, _steps=dict.fromkeys(known), _in_stack=lambda count: False)
    assert Lanes._size(fake, active, loaded, steps) == size


def test_a_stack_steps_as_a_whole_unless_few_are_left() -> None:
    fake: Any = SimpleNamespace(lanes=[None] * 12, _steps={}, _in_stack=lambda count: count == 12)
    assert Lanes._size(fake, 4, 8, 5) == 12  # 4 of 12 is more than a fourth
    assert Lanes._size(fake, 3, 8, 5) == 8


def test_where_torchs_fused_step_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optim, "is_stacked", lambda tensor: False)

    def rate(device: str, dtype: torch.dtype = torch.float32) -> Any:
        return SimpleNamespace(device=SimpleNamespace(type=device), dtype=dtype)

    for momentum, decay, device, dtype, taken in (
        (0.0, 0.0, "cpu", torch.float32, False),
        (0.9, 0.0, "cpu", torch.float32, True),
        (0.0, 0.1, "cpu", torch.float64, True),
        (0.0, 0.0, "cuda", torch.float32, True),
        (0.9, 0.0, "cuda", torch.float64, False),
        (0.9, 0.1, "mps", torch.float32, False),
    ):
        assert SGD(momentum, decay)._fuses(rate(device, dtype)) is taken
    monkeypatch.setattr(optim, "is_stacked", lambda tensor: True)
    assert not SGD(0.9)._fuses(rate("cpu"))


def test_optimizers_by_name() -> None:
    assert OPTIMIZERS["adamw"]((0.8, 0.9), 1e-8, 0.5) == Adam((0.8, 0.9), 1e-8, 0.5, decoupled=True)
    assert OPTIMIZERS["adam"]((0.8, 0.9), 1e-8, 0.5) == Adam((0.8, 0.9), 1e-8, 0.5, decoupled=False)
