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

from accord.algorithms.fedavg import averaging
from accord.core.algorithm import Method, Setup
from accord.core.model import Model
from accord.core.optim import Optimizer, clip_by_norm
from accord.core.task import Corner
from accord.core.types import Batch, Carry, Job
from accord.parts.bounds import within
from accord.parts.personal import OwnModel, batch_gradient
from accord.settings import NOT_NEGATIVE, Search


@dataclass(frozen=True)
class HeldNear(OwnModel):
    """The personal model and its steps."""

    lam: float
    optimizer: Optimizer
    clip: float = 0.0

    def begin(self, model: Model, job: Job) -> Corner:
        """v_k and a fresh optimizer state."""
        corner = super().begin(model, job)
        return {**corner, "optimizer": self.optimizer.init(corner["model"])}

    def after(self, model: Model, job: Job, carry: Carry, batch: Batch) -> None:
        """One step along g(v) + lam (v - w_t)."""
        corner, received = carry[self.name], job.shared["model"]
        own = corner["model"]
        grads, _ = batch_gradient(model, own, corner["buffers"], batch)
        if self.lam:
            grads = {name: g + self.lam * (own[name] - received[name]) for name, g in grads.items()}
        grads = clip_by_norm(grads, self.clip) if self.clip else grads
        self.optimizer.update(own, grads, corner["optimizer"], job.info["lr"])


def ditto(
    setup: Setup,
    *,
    lam: Annotated[float, NOT_NEGATIVE, Search(choices=(0.05, 0.1, 1.0, 2.0)), "pull to the global model"] = 1.0,
) -> Method:
    """FedAvg, and beside it a personal model per client."""
    within(NOT_NEGATIVE, lam=lam)
    return averaging(setup, HeldNear(lam, setup.optimizer, setup.clip))
