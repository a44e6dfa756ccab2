"""Client-level momentum (FedCM): clients step along a mixture of their gradient and the last round's mean direction.

    client k:  w <- w - eta (alpha g + (1 - alpha) D_t),    server:  D_{t+1} = mean_k (w_t - w_k) / (eta tau_k)

`accord.algorithms.fedcm` has the paper and the choices. The part acts on the model; other parts that train something of
their own may ask it for the same mixture and direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from accord.core.model import Model
from accord.core.optim import SGD, Schedule
from accord.core.task import Part
from accord.core.tensors import Tree, Trees, zeros_like
from accord.core.types import Carry, Job, Replies, State, World, weighted_sum


@dataclass(frozen=True)
class ClientMomentum(Part):
    """Clients step along alpha g + (1 - alpha) D, with D the mean direction of the round before."""

    needs_each = ""
    problems = ("any",)
    schedule: Schedule
    optimizer: SGD
    alpha: float = 0.1

    conflicts: ClassVar[frozenset[str]] = frozenset({"the gradient rule"})

    def state(self, model: Model, world: World) -> Trees:
        """D = 0; the first round does not use it."""
        return {"momentum": zeros_like(model.init()[0])}

    def send(self, state: State) -> Trees:
        return {"momentum": state["momentum"]}

    def grad(self, job: Job, carry: Carry, grads: Trees) -> Trees:
        """The mixture on the model alone."""
        return {**grads, "model": self.mixed(job, grads["model"], job.shared["momentum"])}

    def update(self, state: State, replies: Replies, world: World) -> State:
        return {"momentum": {**state["momentum"], **self.direction("model", state, replies, world)}}

    def mixed(self, job: Job, grads: Tree, mean: Mapping[str, Tensor]) -> Tree:
        """alpha g + (1 - alpha) D; g itself in the first round, when there is no D yet."""
        if self.alpha == 1:
            return grads
        share = torch.where(job.info["round"] == 0, 1.0, self.alpha)
        return {name: share * g + (1 - share) * mean[name] for name, g in grads.items()}

    def direction(self, tree: str, state: State, replies: Replies, world: World) -> Tree:
        """D = mean_k (w_t - w_k) / (eta tau_k), each client with the steps it took itself."""
        distance = self.schedule.at(world.round) * self.optimizer.effective_steps(replies.metric("steps"))
        # A client that took no step has not moved: whatever it is divided by, it adds nothing.
        weights = 1 / (distance.clamp(min=1e-30) * len(replies))

        def moved() -> Iterator[Tree]:
            for trained in replies.each(tree):
                yield {name: state[tree][name] - value for name, value in trained.items()}

        return weighted_sum(moved(), weights)
