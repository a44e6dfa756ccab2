"""How much memory there is, and a network refused before it takes more."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from accord.errors import ConfigError

COPIES = 4  # of a model in a run: the template, two to compute with, and the one in training
MAKERS = {torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn}  # what layers make their weights with
MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")


def free_memory(device: torch.device) -> float:
    """Bytes a model may take for all its copies; infinite where the system does not tell."""
    ram = min(_meminfo(), _cgroup())
    return min(ram, float(torch.cuda.mem_get_info(device)[0])) if device.type == "cuda" else ram


class Allowance(TorchFunctionMode):
    """Adds up what a network's layers ask for while it is made, and refuses before the memory is taken.

    (The meta device would count too, but its first use imports a symbolic algebra system for 1.5 seconds.)
    """

    def __init__(self, model: str, free: float) -> None:
        super().__init__()
        self.model, self.free, self.taken = model, free, 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Whatever torch is asked for, counted first where it makes a tensor."""
        kwargs = kwargs or {}
        if func in MAKERS:
            self._take(_count(args, kwargs) * (kwargs.get("dtype") or torch.get_default_dtype()).itemsize)
        return func(*args, **kwargs)

    def _take(self, size: int) -> None:
        self.taken += size
        if self.taken * COPIES > self.free:
            raise ConfigError(
                f"model {self.model!r} with these settings takes {self.taken / 1e9:,.1f} GB or more, and a run keeps "
                f"{COPIES} copies, but only {self.free / 1e9:,.1f} GB of memory are free: make it smaller (its widths "
                "are its settings, such as model.hidden)"
            )


def _count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    size = kwargs.get("size", args[0] if len(args) == 1 else args)
    return math.prod(size) if isinstance(size, tuple | list) else int(size)


def _meminfo() -> float:
    try:
        rows = dict(line.split(":", 1) for line in MEMINFO.read_text(encoding="ascii").splitlines())
        return float(rows["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        pages = os.sysconf("SC_PHYS_PAGES") if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}) else -1
        return float(pages * os.sysconf("SC_PAGE_SIZE")) if pages > 0 else math.inf


def _cgroup() -> float:
    """The limit of a container."""
    try:
        return float(CGROUP.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such limit here, or "max"
        return math.inf
