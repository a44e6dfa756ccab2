"""q-FFL: clients with a higher loss count more, for a fairer spread of accuracies (solved by q-FedAvg).

Li, Sanjabi, Beirami, Smith. "Fair resource allocation in federated learning". ICLR 2020, arXiv 1905.10497.

    client k:  F_k = loss of w_t on all of its training data;  local training -> w_k
               d_k = L (w_t - w_k),   L = 1 / eta, eta the local learning rate
               D_k = F_k^q d_k,       h_k = q F_k^{q-1} |d_k|^2 + L F_k^q
    server:    w_{t+1} = w_t - sum_k D_k / sum_k h_k                     no weights by samples

Sent: the model down; w_k and F_k up. The paper's clients send D_k and h_k instead, from which w_k and F_k follow:
the server reckons them here, so that what is measured on the clients' models needs no exception.
Defaults: q = 2 (FedUFO's choice of 1, 2, 5). q = 0 is FedAvg with uniform weights. F_k is taken in evaluation mode,
plus 1e-10 so that a power of it always exists. Buffers are averaged uniformly. eta follows local.schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch

import accord.authoring as fl
from accord.core.disclosure import Declared, Disclosure
from accord.core.optim import Schedule
from accord.core.tensors import squared_norm, subtract
from accord.parts.lookup import in_chunks


@dataclass(frozen=True)
class FairStep(fl.Part):
    """The loss before training from the client, the weighted step on the server."""

    needs_each = "weighs each client by its loss and the length of its change"
    problems = ("any",)
    q: float
    schedule: Schedule

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        w, buffers = job.shared["model"], job.shared["buffers"]
        logits = in_chunks(lambda x: model.reference(w, buffers, x).logits, job.data.x)
        return {"loss": model.problem.mean_loss(logits, job.data.y)}

    def discloses(self) -> Declared:
        return {"loss_before": Disclosure.SCORE}

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        return {"loss_before": {"loss": carry[self.name]["loss"]}}, {}

    def update(self, state: fl.State, replies: fl.Replies, world: fl.World) -> fl.State:
        """The step, its fraction reduced by L: sum F^q (w_t - w_k) / sum (q F^{q-1} L |w_t - w_k|^2 + F^q)."""
        w = state["model"]
        loss = torch.stack([tree["loss"].double().cpu() for tree in replies.each("loss_before")]) + 1e-10
        moved = [squared_norm(subtract(w, model)).double().cpu() for model in replies.each("model")]
        lr = max(self.schedule.at(world.round), 1e-30)  # nothing moves at a rate of 0
        importance = loss**self.q
        total = (self.q * loss ** (self.q - 1) * torch.stack(moved) / lr + importance).sum()
        share = importance / total
        pulled = replies.mean("model", share)
        stays = 1 - float(share.sum())
        return {"model": {name: stays * w[name] + pulled[name] for name in w}}


@fl.method("client")
def qffl(
    setup: fl.Setup,
    *,
    q: Annotated[float, fl.AtLeast(0), fl.Search(choices=(0.1, 1.0, 2.0, 5.0)), "how much fairness counts"] = 2.0,
) -> fl.Method:
    """Average models with more weight on clients that are served badly."""
    if q == 0:
        return fl.averaging(setup, weight="uniform")
    return setup.method(setup.local(fl.SampleLoss(), FairStep(q, setup.schedule)), {"buffers": fl.Mean("uniform")})
