"""Samples that clients give to the server, and training without them afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from accord.core.model import Model
from accord.core.plan import Plan
from accord.core.task import Corner, Part, View
from accord.core.tensors import Trees
from accord.core.types import Batch, Carry, Job, Result


@dataclass(frozen=True)
class HandOver:
    """A client program that trains nothing: the first samples of one shuffled pass go to the server."""

    share: float
    plan: Plan = Plan(epochs=1, batch_size=0)  # noqa: RUF009 - frozen, so it can be shared

    def first_memory(self, job: Job) -> Trees:
        """Nothing was given yet."""
        return {}

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """The shuffled pass is all the chance there is."""
        return {}

    def begin(self, job: Job) -> Carry:
        """Nothing given."""
        return {"given": torch.zeros_like(job.data.y, dtype=torch.bool)}

    def step(self, job: Job, carry: Carry, batch: Batch) -> Carry:
        """The only step: all samples, in random order."""
        total = len(batch.index)
        carry["given"].index_fill_(0, batch.index[: min(total - 1, round(self.share * total))], True)
        return carry

    def finish(self, job: Job, carry: Carry) -> Result:
        """The samples travel, which ones they were stays."""
        given: Tensor = carry["given"]
        return Result({"meta": {"x": job.data.x[given], "y": job.data.y[given]}}, {"meta": {"given": given}}, {})


@dataclass(frozen=True)
class KeptSamples(Part):
    """Cross-entropy on the samples that were not given away."""

    def begin(self, model: Model, job: Job) -> Corner:
        """For every sample the one to show in its place, and whether it counts."""
        # Who was not asked, or not there when the others gave, has given nothing.
        given = job.memory["meta"]["given"] if "meta" in job.memory else torch.zeros_like(job.data.y, dtype=torch.bool)
        kept = (~given).nonzero().flatten()
        shown = torch.arange(len(given), device=given.device)
        shown[given] = kept[torch.arange(int(given.sum()), device=given.device) % len(kept)]
        return {"shown": shown, "counts": (~given).to(job.info["lr"].dtype), "x": job.data.x, "y": job.data.y}

    def batch(self, job: Job, corner: Corner, batch: Batch) -> Batch:
        """Given samples make room for kept ones of weight 0."""
        index = corner["shown"][batch.index]
        weight = batch.weight * corner["counts"][batch.index]
        x, y = corner["x"].index_select(0, index), corner["y"].index_select(0, index)
        return batch._replace(x=x, y=y, weight=weight, index=index)

    def loss(self, view: View) -> Tensor:
        """Mean over the kept samples; 0 for a batch that was given away whole."""
        losses = functional.cross_entropy(view.out.logits, view.batch.y, reduction="none")
        return (losses * view.batch.weight).sum() / view.batch.weight.sum().clamp(min=1)
