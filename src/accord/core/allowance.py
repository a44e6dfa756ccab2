"""A network refused while it is made, before it takes more memory than it may."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

MAKERS = {torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn}  # what layers make their weights with


class Allowance(TorchFunctionMode):
    """Adds up what a network's layers ask for; `refusal` makes an error of the bytes where they are more than `most`.

    (The meta device would count too, but its first use imports a symbolic algebra system for 1.5 seconds.)
    """

    def __init__(self, most: float, refusal: Callable[[int], Exception]) -> None:
        super().__init__()
        self.most, self.refusal, self.taken = most, refusal, 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Whatever torch is asked for, counted first where it makes a tensor."""
        kwargs = kwargs or {}
        if func in MAKERS:
            self.taken += _count(args, kwargs) * (kwargs.get("dtype") or torch.get_default_dtype()).itemsize
            if self.taken > self.most:
                raise self.refusal(self.taken)
        return func(*args, **kwargs)


def _count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    size = kwargs.get("size", args[0] if len(args) == 1 else args)
    return math.prod(size) if isinstance(size, tuple | list) else int(size)
