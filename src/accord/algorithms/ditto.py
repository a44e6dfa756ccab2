"""Ditto: a personal model for every client, held near the global one.

Li, Hu, Beirami, Smith. "Ditto: fair and robust federated learning through personalization". ICML 2021,
arXiv 2012.04221.

    client k:  w <- FedAvg's steps from w_t -> w_k
               v_k <- v_k - eta (g(v_k) + lam (v_k - w_t))             on the same batches, after each of them
    server:    w_{t+1} = sum_k a_k w_k

Sent: as FedAvg. Kept by the client: v_k and its running statistics, never sent. Personal accuracy is v_k's, global
accuracy is w's, and the loss in the metrics is w's. Defaults: lam = 1 (0.05 to 2 are searched), weights by samples.
Choices: v_k starts as the w_t of the client's first visit; its step is the shared local optimizer's with a state of
its own that is new in every round, and the shared gradient clipping. lam = 0 trains v_k on its own data only. The
global half is FedAvg to the bit, unless the network has dropout, whose masks the two models draw in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import accord.authoring as fl
from accord.core.optim import Optimizer, clip_by_norm
from accord.core.tensors import clone
from accord.parts.losses import batch_gradient


@dataclass(frozen=True)
class HeldNear(fl.Part):
    """A whole second model with running statistics of its own, and its steps; it is never sent."""

    problems = ("any",)
    lam: float
    optimizer: Optimizer
    clip: float

    def memory(self, job: fl.Job) -> fl.Trees:
        """The model of the client's first visit."""
        return {"own": job.shared["model"], "own_buffers": job.shared["buffers"]}

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """v_k and a fresh optimizer state."""
        own = clone(job.memory["own"])
        return {"model": own, "buffers": clone(job.memory["own_buffers"]), "optimizer": self.optimizer.init(own)}

    def after(self, model: fl.Model, job: fl.Job, carry: fl.Carry, batch: fl.Batch) -> None:
        """One step along g(v) + lam (v - w_t)."""
        corner, received = carry[self.name], job.shared["model"]
        own = corner["model"]
        grads, _ = batch_gradient(model, own, corner["buffers"], batch)
        if self.lam:
            grads = {name: g + self.lam * (own[name] - received[name]) for name, g in grads.items()}
        grads = clip_by_norm(grads, self.clip) if self.clip else grads
        self.optimizer.update(own, grads, corner["optimizer"], job.info["lr"])

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        corner = carry[self.name]
        return {}, {"own": corner["model"], "own_buffers": corner["buffers"]}

    def judged(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Tree, fl.Tree]:
        corner = carry[self.name]
        return corner["model"], corner["buffers"]


@fl.method("personal")
def ditto(
    setup: fl.Setup,
    *,
    lam: Annotated[float, fl.AtLeast(0), fl.Search(choices=(0.05, 0.1, 1.0, 2.0)), "pull to the global model"] = 1.0,
) -> fl.Method:
    """FedAvg, and beside it a personal model per client."""
    return fl.averaging(setup, HeldNear(lam, setup.optimizer, setup.clip))
