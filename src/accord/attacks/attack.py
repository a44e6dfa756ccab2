"""What a hostile client may do, and the registry of those who do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from accord.settings import Registry

Change = Callable[[Tensor, np.random.Generator], Tensor]


@dataclass(frozen=True)
class Attack:
    """One of the two: other labels, of the same classes, to train with; or another change to send than was trained."""

    labels: Callable[[Tensor, int], Tensor] | None = None  # [n] labels and the number of classes -> [n] labels
    change: Change | None = None  # what a tensor was moved by, and the client's chance in this round -> what is sent


ATTACKS: Registry[Callable[..., Attack]] = Registry("attack")
