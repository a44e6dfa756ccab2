"""DP-SGD: every sample's gradient by itself, clipped, summed, with noise (Abadi et al., CCS 2016, arXiv 1607.00133).

    g = (1 / B) (sum_i g_i min(1, C / |g_i|) + z C N(0, I))

g_i is the gradient of all the parts' losses at sample i alone, over all trees that are trained, B the expected number
of samples in a batch. The noise comes from torch's generator, which is seeded by the client's own address.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from accord.core.tensors import Trees
from accord.core.types import Batch, Carry, Job

if TYPE_CHECKING:
    from accord.core.task import LocalTraining

ROUNDING = 1e-3  # more than single precision loses in the norm of a long gradient: none ends above C
MOST_VALUES = 1 << 24  # of single samples' gradients held at once


@dataclass(frozen=True)
class PerSample:
    """The clipping norm C and the noise multiplier z."""

    clip: float
    noise: float

    def gradients(
        self, task: LocalTraining, job: Job, carry: Carry, leaves: Trees, batch: Batch
    ) -> tuple[Trees, list[Tensor]]:
        """What takes the place of the batch's gradient, and the sums for the metrics."""

        def alone(leaves: Trees, x: Tensor, y: Tensor, weight: Tensor, index: Tensor) -> Tensor:
            one = Batch(x[None], y[None], torch.ones_like(weight)[None], index[None], {})
            return task.objective(job, carry, leaves, one)[0]

        gradient = torch.func.grad_and_value(alone)
        each = torch.func.vmap(gradient, in_dims=(None, 0, 0, 0, 0), randomness="different")
        width = sum(t.numel() for tree in leaves.values() for t in tree.values())
        at_once = max(MOST_VALUES // max(width, 1), 1)
        total = {tree: {name: torch.zeros_like(t) for name, t in named.items()} for tree, named in leaves.items()}
        loss = carry["metrics"]["loss"].new_zeros(())
        fixed = {tree: {name: t.detach() for name, t in named.items()} for tree, named in leaves.items()}
        for start in range(0, len(batch.weight), at_once):
            rows = slice(start, start + at_once)
            weight = batch.weight[rows]
            grads, losses = each(fixed, batch.x[rows], batch.y[rows], weight, batch.index[rows])
            loss = loss + (losses.detach() * weight).sum(dtype=loss.dtype)
            factor = self.factors(grads, weight)
            for tree, named in grads.items():
                for name, values in named.items():
                    total[tree][name] += torch.tensordot(factor.to(values.dtype), values, dims=1)
        expected = job.info["examples"].to(job.info["lr"].dtype)
        if task.plan.batch_size:
            expected = expected.clamp(max=float(task.plan.batch_size))
        for named in total.values():
            for values in named.values():
                values.add_(torch.randn_like(values), alpha=self.noise * self.clip).div_(expected)
        return total, [loss, batch.weight.sum(dtype=torch.float64)]

    def factors(self, grads: Trees, weight: Tensor) -> Tensor:
        """[B] min(1, C / |g_i|), over all trees; 0 for padding."""
        lengths = [
            torch.linalg.vector_norm(t.flatten(1), dim=1).double() for named in grads.values() for t in named.values()
        ]
        norms: Tensor = torch.linalg.vector_norm(torch.stack(lengths), dim=0) * (1 + ROUNDING)
        return (self.clip / norms.clamp(min=1e-300)).clamp(max=1.0) * weight
