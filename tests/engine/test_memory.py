"""How much memory there is, and networks that would take more."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from accord.engine.memory import allowance, free_memory
from accord.errors import ConfigError

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("limit", "free"),
    [("max\n", 512_000.0), ("400000\n", 400_000.0), ("600000\n", 512_000.0), (None, 512_000.0)],
)
def test_what_is_available_and_what_a_container_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str | None, free: float
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       9000 kB\nMemAvailable:    500 kB\nCached:  1 kB\n")
    monkeypatch.setattr("accord.engine.memory.MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr("accord.engine.memory.CGROUP", tmp_path / "limit")
    if limit is not None:
        (tmp_path / "limit").write_text(limit)
    assert free_memory(CPU) == free


@pytest.mark.parametrize("text", [None, "", "MemTotal: 9000 kB\n", "MemAvailable: much\n"])
def test_where_linux_does_not_say_all_pages_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "meminfo").write_text(text)
    monkeypatch.setattr("accord.engine.memory.MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr("accord.engine.memory.CGROUP", tmp_path / "no such limit")
    for pages, free in ((3, 3 * 4096.0), (0, math.inf), (-1, math.inf)):
        monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": pages, "SC_PAGE_SIZE": 4096}.__getitem__)
        assert free_memory(CPU) == free
    monkeypatch.setattr(os, "sysconf_names", {})
    assert free_memory(CPU) == math.inf


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda: nn.Linear(10, 10, dtype=torch.float32), 440),
        (lambda: nn.Linear(10, 10, dtype=torch.float64), 880),
        (lambda: nn.Sequential(nn.Linear(2, 3, False, dtype=torch.float32), nn.Linear(3, 1, dtype=torch.float32)), 40),
        (lambda: torch.empty((3, 4), dtype=torch.float32), 48),
        (lambda: torch.zeros(3, 4, dtype=torch.float32), 48),
        (lambda: torch.ones(5, dtype=torch.float32), 20),
        (lambda: torch.randn(size=(2, 5), dtype=torch.float32), 40),
        (lambda: torch.rand([2, 5], dtype=torch.float16), 20),
        (lambda: torch.zeros(4), 16),
    ],
)
def test_four_copies_must_fit(make: Any, size: int) -> None:
    with allowance("mlp", free=4.0 * size) as counted:
        make()
    assert counted.taken == size
    with pytest.raises(ConfigError, match="model 'mlp' with these settings takes"), allowance("mlp", 4.0 * size - 1):
        make()
