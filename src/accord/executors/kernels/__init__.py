"""A network's layers, computed in other ways: which ones a model should compute with, and where."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from accord.executors.kernels.cpu import cpu_layers
from accord.executors.kernels.gpu import gpu_layers, rows_at_once
from accord.executors.kernels.stacked import stacked_layers

__all__ = ["cpu_layers", "gpu_layers", "layers_for", "rows_at_once", "stacked_layers"]


def layers_for(
    device: torch.device | str, *, channels_last: bool = False, compiled: bool = False
) -> Callable[[nn.Module], nn.Module] | None:
    """What exchanges a network's layers for those that suit the place; None: torch's own do.

    A stack of clients needs layers that know of it, and a GPU can do some of them at once. A CPU has layouts it likes,
    unless one was asked for.
    """
    on_cpu = torch.device(device).type == "cpu"
    if compiled:
        return stacked_layers if on_cpu else gpu_layers
    return cpu_layers if on_cpu and not channels_last else None
