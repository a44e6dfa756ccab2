"""How much memory there is, and a network refused before it takes more."""

from __future__ import annotations

import math
import os
from pathlib import Path

import torch

from accord.core.allowance import Allowance
from accord.errors import ConfigError

COPIES = 4  # of a model in a run: the template, two to compute with, and the one in training
MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")


def free_memory(device: torch.device) -> float:
    """Bytes a model may take for all its copies; infinite where the system does not tell."""
    ram = min(_meminfo(), _cgroup())
    return min(ram, float(torch.cuda.mem_get_info(device)[0])) if device.type == "cuda" else ram


def allowance(model: str, free: float) -> Allowance:
    """For making a network of which a run keeps several copies."""
    return Allowance(
        free / COPIES,
        lambda taken: ConfigError(
            f"model {model!r} with these settings takes {taken / 1e9:,.1f} GB or more, and a run keeps "
            f"{COPIES} copies, but only {free / 1e9:,.1f} GB of memory are free: make it smaller (its widths are its "
            "settings, such as model.hidden)"
        ),
    )


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
