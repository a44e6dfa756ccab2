"""Distances between what two models say of one batch: maximum mean discrepancy and squared differences.

B samples, D outputs (classes or features). A kernel's width s is a variance: exp(-|a - b|^2 / 2s).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from accord.core.model import Model
from accord.core.task import Corner, Part, View
from accord.core.types import Job
from accord.parts.frozen import gathered, in_chunks

Output = Literal["logits", "features"]
Kernel = Literal["fixed", "median"]

FIXED_WIDTHS = (
    *(1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
    *(5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0),
    *(1e2, 1e3, 1e4, 1e5, 1e6),
)
RELATIVE_WIDTHS = (0.125, 0.25, 0.5, 1.0, 2.0)  # 2^-3 to 2^1 times the mean distance


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """[B, B] |a_i - b_j|^2 from the differences themselves: never negative, exactly 0 for equal rows.

    |a|^2 + |b|^2 - 2ab is faster, but loses what the narrow kernels look at: at |a| = 10 its error in single
    precision is ten times the narrowest width.
    """
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()


def mmd(x: Tensor, y: Tensor, weight: Tensor, widths: Tensor, relative: bool = False) -> Tensor:
    """MMD^2 with summed Gaussian kernels, biased (a sample is compared with itself too); 0 for equal inputs.

    `weight` 0 leaves a sample out. Relative widths are multiples of the mean squared distance between two of
    the 2B samples, which is treated as a constant.
    """
    pair = weight[:, None] * weight / weight.sum().square()
    xx, yy, xy = squared_distances(x, x), squared_distances(y, y), squared_distances(x, y)
    if relative:
        # The mean off the diagonal, which adds nothing to the sum and is taken off the count.
        count = 4 - 2 * pair.diagonal().sum()
        mean = (pair * (xx + yy + 2 * xy)).sum().detach() / count
        widths = widths * mean.clamp(min=torch.finfo(mean.dtype).tiny)

    def kernel(distances: Tensor) -> Tensor:
        return torch.exp(-distances / (2 * widths[:, None, None])).sum(0)

    return (pair * (kernel(xx) + kernel(yy) - 2 * kernel(xy))).sum()


@dataclass(frozen=True)
class TwoStream(Part, ABC):
    """lam * distance between the outputs of the received model, frozen, and of the trained one."""

    lam: float
    on: Output = "logits"

    @abstractmethod
    def distance(self, received: Tensor, trained: Tensor, weight: Tensor, corner: Corner) -> Tensor:
        """What is penalised; 0-d."""

    def received(self, model: Model, job: Job) -> Callable[[Tensor], Tensor]:
        """The frozen stream, in evaluation mode."""
        start = job.shared["model"], job.shared["buffers"]
        return lambda x: self.output(model.reference(*start, x))

    def output(self, out: tuple[Tensor, Tensor]) -> Tensor:
        """The compared half of a model's output."""
        logits, features = out
        return logits if self.on == "logits" else features

    def begin(self, model: Model, job: Job) -> Corner:
        """The received model's outputs on all of the client's samples; they stay the same all round."""
        return {} if self.lam == 0 else {"received": in_chunks(self.received(model, job), job.data.x)}

    def loss(self, view: View) -> Tensor | None:
        """None at lam = 0, so that it costs and changes nothing."""
        if self.lam == 0:
            return None
        corner = view.carry[self.name]
        received = gathered(corner["received"], view.batch, self.received(view.model, view.job))
        return self.lam * self.distance(received, self.output(view.out), view.batch.weight, corner)


@dataclass(frozen=True)
class MMD(TwoStream):
    """lam * max(floor, MMD^2): below the floor, as in the first step of a round, there is no gradient."""

    stacks = False  # kernels of variance 1e-6 take two roundings of one product for two features
    kernel: Kernel = "fixed"
    floor: float = 1e-4

    def begin(self, model: Model, job: Job) -> Corner:
        """Also the kernels' widths, so that no step copies them to the device."""
        corner = super().begin(model, job)
        if corner:
            widths = FIXED_WIDTHS if self.kernel == "fixed" else RELATIVE_WIDTHS
            corner["widths"] = corner["received"].new_tensor(widths)
        return corner

    def distance(self, received: Tensor, trained: Tensor, weight: Tensor, corner: Corner) -> Tensor:
        """max(floor, MMD^2)."""
        found = mmd(received, trained, weight, corner["widths"], relative=self.kernel == "median")
        return found.clamp(min=self.floor)


@dataclass(frozen=True)
class OutputL2(TwoStream):
    """(lam / 2) * sum over samples and outputs of the squared difference; a sum, not a mean."""

    def distance(self, received: Tensor, trained: Tensor, weight: Tensor, corner: Corner) -> Tensor:
        """Half the sum of squares."""
        return 0.5 * (weight[:, None] * (received - trained).square()).sum()
