"""Forwards of frozen models over a client's own samples, compiled.

Their convolutions stay cuDNN's: the compiler lays images out as matrix units want them, and fuses what lies between.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from accord.core.model import Out
from accord.core.tensors import ordered
from accord.executors.gpu.compiler import Found, Made, StackError, filled, flat, made_once, traced

ROWS = 128  # samples are padded to a multiple of it: one compiled forward serves clients of many sizes


class FrozenForward:
    """Calls a model's forward compiled; as it is where that fails, with one warning.

    For what comes before the steps: those are recorded or compiled themselves.
    """

    def __init__(self) -> None:
        self._made: dict[Any, Made] = {}  # by shapes
        self._fails = False

    def __call__(
        self, forward: Callable[..., Out], params: Mapping[str, Tensor], buffers: Mapping[str, Tensor], x: Tensor
    ) -> Out:
        """Logits and features."""
        if self._fails or not len(x) or torch.is_grad_enabled():
            return forward(params, buffers, x)
        missing = -len(x) % ROWS
        padded = torch.cat([x, x[:1].expand(missing, *x.shape[1:])]) if missing else x
        form, tensors = flat({"params": ordered(params), "buffers": ordered(buffers), "x": padded})

        def function(*tensors: Tensor) -> Found:
            return list(forward(**filled(form, tensors)))

        try:
            found = made_once(self._made, tensors, lambda: traced(function, tensors))
        except StackError as error:
            self._fails = True
            warnings.warn(
                f"frozen models cannot be compiled, they run as they are: {error}", RuntimeWarning, stacklevel=2
            )
            return forward(params, buffers, x)
        return Out(*(tensor[: len(x)] for tensor in found))
