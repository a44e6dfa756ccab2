"""FedCM: clients step along a mixture of their gradient and the last round's mean direction.

Xu, Wang, Wang, Yao. "FedCM: Federated learning with client-level momentum". arXiv 2106.10874, 2021.

    client k:  w <- w - eta (alpha g + (1 - alpha) D_t)                       tau_k steps from w_t
    server:    D_{t+1} = mean_k (w_t - w_k) / (eta tau_k),   w_{t+1} = w_t + eta_g mean_k (w_k - w_t)

In the first round there is no D and the clients take plain SGD steps. With equal tau, eta_g mean_k (w_k -
w_t) is - eta_g eta tau D_{t+1}, as the paper writes it.

Sent: the model and D down (twice FedAvg), the model up; D says no more than two successive models do. The
clients keep nothing. Defaults: alpha = 0.1, eta_g = 1, uniform mean. alpha = 1 is FedAvg with uniform
weights. Weight decay is added to the mixed direction; as D holds the last round's decay too, it acts up to 1
/ alpha times. With local momentum rho (the paper has none) the clients move further than eta tau g; tau_k is
then the sum of the momentum's weights (`SGD.effective_steps`), or D would grow from round to round.
local.optimizer_state = "kept" is allowed and counts the same: what a kept velocity adds at the start of a round is
taken for gradients of that round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

import accord.authoring as fl
from accord.aggregate import stepped
from accord.core.optim import SGD, Schedule
from accord.core.tensors import zeros_like
from accord.core.types import weighted_sum


@dataclass(frozen=True)
class ClientMomentum(fl.Part):
    """Clients step along alpha g + (1 - alpha) D, with D the mean direction of the round before."""

    problems = ("any",)
    schedule: Schedule
    optimizer: SGD
    alpha: float = 0.1

    conflicts: ClassVar[frozenset[str]] = frozenset({"the gradient rule"})

    def state(self, model: fl.Model, world: fl.World) -> fl.Trees:
        """D = 0; the first round does not use it."""
        return {"momentum": zeros_like(model.init()[0])}

    def send(self, state: fl.State) -> fl.Trees:
        return {"momentum": state["momentum"]}

    def grad(self, job: fl.Job, carry: fl.Carry, grads: fl.Trees) -> fl.Trees:
        """alpha g + (1 - alpha) D on the model alone; g itself in the first round, when there is no D yet."""
        if self.alpha == 1:
            return grads
        share = torch.where(job.info["round"] == 0, 1.0, self.alpha)
        mean = job.shared["momentum"]
        return {**grads, "model": {n: share * g + (1 - share) * mean[n] for n, g in grads["model"].items()}}

    def update(self, state: fl.State, replies: fl.Replies, world: fl.World) -> fl.State:
        """D = mean_k (w_t - w_k) / (eta tau_k), each client with the steps it took itself."""
        distance = self.schedule.at(world.round) * self.optimizer.effective_steps(replies.metric("steps"))
        # A client that took no step has not moved: whatever it is divided by, it adds nothing.
        weights = 1 / (distance.clamp(min=1e-30) * len(replies))

        def moved() -> Iterator[fl.Tree]:
            for model in replies.each("model"):
                yield {name: state["model"][name] - value for name, value in model.items()}

        return {"momentum": {**state["momentum"], **weighted_sum(moved(), weights)}}


@fl.method("client", part=("alpha",))
def fedcm(
    setup: fl.Setup,
    *,
    alpha: Annotated[
        float,
        fl.Range(above=0, high=1),
        fl.Search(choices=(0.05, 0.1, 0.3)),
        "share of the client's own gradient; 1 is plain SGD",
    ] = 0.1,
    server_lr: Annotated[
        float, fl.Range(above=0), fl.Search(0.1, 1.0), "eta_g, the server's step on the mean change"
    ] = 1.0,
) -> fl.Method:
    """Average models trained with client-level momentum."""
    if not isinstance(setup.optimizer, SGD):
        raise fl.ConfigError("fedcm needs local.optimizer = 'sgd': it divides the clients' change by the rate")
    local = setup.local(fl.SampleLoss(), ClientMomentum(setup.schedule, setup.optimizer, alpha))
    mean = fl.Mean("uniform")
    return setup.method(local, {"model": stepped(mean, server_lr), "buffers": mean})
