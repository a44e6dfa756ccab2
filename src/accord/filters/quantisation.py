"""Eight bits for a real number: a tensor's values as whole multiples of one step, rounded up or down by chance.

    s = max |v| / 127,   q = floor(v / s + u),   u uniform in [0, 1):   E[s q] = v

A value between two steps is rounded up as often as it lies above the lower one, so no error adds up over clients or
rounds (QSGD: Alistarh, Grubic, Li, Tomioka, Vojnovic, NeurIPS 2017, with the maximum norm).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

LEVELS = 127


def quantised(values: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """int8 of the same shape, and the step they are multiples of, 0-d and of the values' own type."""
    wide = values.detach().double().cpu()
    largest = wide.abs().max() if wide.numel() else torch.zeros((), dtype=torch.float64)
    step = (largest / LEVELS).to(values.dtype)
    if float(step) * LEVELS < float(largest):  # rounded down: the largest value would not fit
        step = torch.nextafter(step, torch.full_like(step, torch.inf))
    if float(step) == 0.0:
        return torch.zeros(values.shape, dtype=torch.int8), torch.zeros((), dtype=values.dtype)
    chance = torch.from_numpy(rng.random(values.numel())).view(values.shape)
    steps = (wide / step.double() + chance).floor_().clamp_(-LEVELS, LEVELS)
    return steps.to(torch.int8), step


def restored(steps: Tensor, step: Tensor) -> Tensor:
    """The values, in the step's own type."""
    return (steps.double() * step.double()).to(step.dtype)
