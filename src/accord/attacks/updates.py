"""Poisoned updates: the client trains, and sends something else."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from accord.attacks.attack import ATTACKS, Attack
from accord.settings import POSITIVE


@ATTACKS.add("sign_flip")
def sign_flip(*, factor: Annotated[float, POSITIVE, "length of what is sent, in those of the change"] = 1.0) -> Attack:
    """Send the change with its sign turned."""
    return Attack(change=lambda change, rng: -factor * change)


@ATTACKS.add("scaled")
def scaled(*, factor: Annotated[float, POSITIVE, "what the change is multiplied by"] = 10.0) -> Attack:
    """Send the change many times over, to outweigh the others."""
    return Attack(change=lambda change, rng: factor * change)


@ATTACKS.add("noise")
def noise(*, deviation: Annotated[float, POSITIVE, "standard deviation of every value that is sent"] = 0.1) -> Attack:
    """Send Gaussian noise in the place of the change."""

    def drawn(change: Tensor, rng: np.random.Generator) -> Tensor:
        values = torch.from_numpy(deviation * rng.standard_normal(tuple(change.shape)))
        return values.to(change.device, change.dtype)

    return Attack(change=drawn)


@ATTACKS.add("same_value")
def same_value(*, value: Annotated[float, "what every value is moved by"] = 0.1) -> Attack:
    """Move every value by the same number."""
    return Attack(change=lambda change, rng: torch.full_like(change, value))
