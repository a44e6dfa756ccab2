"""Rules that replace the gradient of a local step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from accord.core.algorithm import Setup
from accord.core.model import Model
from accord.core.optim import SGD, Schedule
from accord.core.task import Part
from accord.core.tensors import Tree, Trees, zeros_like
from accord.core.types import Carry, Job, Replies, State, World, weighted_sum
from accord.errors import ConfigError
from accord.parts.bounds import within
from accord.settings import Range, Search

OWN_SHARE = Range(above=0, high=1)
Alpha = Annotated[
    float, OWN_SHARE, Search(choices=(0.05, 0.1, 0.3)), "share of the client's own gradient; 1 is plain SGD"
]


def effective_steps(steps: Tensor, optimizer: SGD) -> Tensor:
    """How many times the learning rate `steps` steps of one constant gradient move: more with momentum."""
    rho = optimizer.momentum
    weights = (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
    return steps + rho * weights if optimizer.nesterov else weights


@dataclass(frozen=True)
class ClientMomentum(Part):
    """Clients step along alpha g + (1 - alpha) D, with D the mean direction of the round before."""

    schedule: Schedule
    optimizer: SGD
    alpha: float = 0.1

    conflicts: ClassVar[frozenset[str]] = frozenset({"the gradient rule"})

    def __post_init__(self) -> None:
        within(OWN_SHARE, alpha=self.alpha)

    def state(self, model: Model, world: World) -> Trees:
        """D = 0; the first round does not use it."""
        return {"momentum": zeros_like(model.init()[0])}

    def send(self, state: State) -> Trees:
        """D."""
        return {"momentum": state["momentum"]}

    def grad(self, job: Job, carry: Carry, grads: Trees) -> Trees:
        """alpha g + (1 - alpha) D on the model alone; g itself in the first round, when there is no D yet."""
        if self.alpha == 1:
            return grads
        own = torch.where(job.info["round"] == 0, 1.0, self.alpha)
        mean = job.shared["momentum"]
        return {**grads, "model": {n: own * g + (1 - own) * mean[n] for n, g in grads["model"].items()}}

    def update(self, state: State, replies: Replies, world: World) -> State:
        """D = mean_k (w_t - w_k) / (eta tau_k), each client with the steps it took itself."""
        distance = self.schedule.at(world.round) * effective_steps(replies.metric("steps"), self.optimizer)
        # A client that took no step has not moved: whatever it is divided by, it adds nothing.
        weights = 1 / (distance.clamp(min=1e-30) * len(replies))

        def moved() -> Iterator[Tree]:
            for model in replies.each("model"):
                yield {name: state["model"][name] - value for name, value in model.items()}

        return {"momentum": {**state["momentum"], **weighted_sum(moved(), weights)}}


def fedcm(setup: Setup, *, alpha: Alpha = 0.1) -> ClientMomentum:
    """The part by its settings."""
    if not isinstance(setup.optimizer, SGD):
        raise ConfigError("fedcm needs local.optimizer = 'sgd': it divides the clients' change by the rate")
    return ClientMomentum(setup.schedule, setup.optimizer, alpha)
