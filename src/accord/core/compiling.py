"""`torch.compile` for the loss of a step and its gradient: fewer, larger kernels.

What a compiler makes is cached on disk by torch, so a second run of the same task starts faster.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch

from accord.errors import ConfigError

Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def compiled(function: Function) -> Function:
    """The same function, fused; dropout draws the masks it would draw without."""
    fused: Any = torch.compile(function, options={"fallback_random": True})
    same: Function = fused
    return same


def check_compiler(device: torch.device) -> None:
    """Refuse before any work where it cannot help. Also forgets earlier runs: torch keeps few variants in mind."""
    if device.type != "cuda":
        raise ConfigError(
            "compile = true is for GPUs, on a CPU the compiled step is the slower one: set compile to false"
        )
    torch.compiler.reset()
    try:
        torch.compile(_probe)(torch.zeros(8, device=device))
    except Exception as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise ConfigError(
            f"compile = true, but torch.compile does not work here ({reason}): install a C compiler "
            "and Triton, or set compile to false"
        ) from error


def _probe(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).relu()
