"""A network's layers, computed in other ways: which ones a model should compute with, and where."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from accord.executors.kernels.cpu import cpu_layers
from accord.executors.kernels.stacked import stacked_layers

__all__ = ["cpu_layers", "layers_for", "stacked_layers"]


def layers_for(
    device: torch.device | str, *, channels_last: bool = False, compiled: bool = False
) -> Callable[[nn.Module], nn.Module] | None:
    """What exchanges a network's layers for those that suit the place; None: torch's own do.

    A stack of clients needs layers that know of it. A CPU has layouts it likes, unless one was asked for.
    """
    if compiled:
        return stacked_layers
    return cpu_layers if torch.device(device).type == "cpu" and not channels_last else None
