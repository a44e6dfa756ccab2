"""Server optimizers (Reddi et al., ICLR 2021, arXiv 2003.00295): the clients' mean change is a pseudo-gradient.

d = rule(w) - w;  FedAvgM: v <- beta v + d, w <- w + lr v;  FedAdam: m <- b1 m + (1 - b1) d,
v <- b2 v + (1 - b2) d^2, w <- w + lr m / (sqrt(v) + tau). No bias correction, v starts at tau^2, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch

from accord.aggregate.mean import Mean
from accord.core.algorithm import Aggregator
from accord.core.tensors import Tree, Trees, zeros_like
from accord.core.types import Replies, State


class ServerStep(Protocol):
    """One optimizer's rule on the mean change."""

    def moments(self, value: Tree) -> Trees:
        """Named moments before the first round."""
        ...

    def __call__(self, value: Tree, change: Tree, moments: Trees) -> tuple[Tree, Trees]:
        """New value and new moments."""
        ...


@dataclass(frozen=True)
class FedAvgM:
    """Momentum on the mean change; lr 1 and beta 0 is the plain mean."""

    lr: float = 1.0
    beta: float = 0.9

    def moments(self, value: Tree) -> Trees:
        return {"velocity": zeros_like(value)}

    def __call__(self, value: Tree, change: Tree, moments: Trees) -> tuple[Tree, Trees]:
        """v <- beta v + d, w <- w + lr v."""
        velocity = {name: self.beta * moments["velocity"][name] + change[name] for name in change}
        return {name: value[name] + self.lr * velocity[name] for name in change}, {"velocity": velocity}


@dataclass(frozen=True)
class FedAdam:
    """Adam on the mean change; with `yogi` the second moment moves by the sign of its error."""

    lr: float = 0.01
    betas: tuple[float, float] = (0.9, 0.99)
    tau: float = 1e-3
    yogi: bool = False

    def moments(self, value: Tree) -> Trees:
        """m = 0, v = tau^2."""
        return {
            "first": zeros_like(value),
            "second": {name: torch.full_like(t, self.tau**2) for name, t in value.items()},
        }

    def __call__(self, value: Tree, change: Tree, moments: Trees) -> tuple[Tree, Trees]:
        """Both moments, then the step."""
        b1, b2 = self.betas
        first = {name: b1 * moments["first"][name] + (1 - b1) * change[name] for name in change}
        second: Tree = {}
        for name, d in change.items():
            old, square = moments["second"][name], d * d
            second[name] = (
                old - (1 - b2) * square * torch.sign(old - square) if self.yogi else b2 * old + (1 - b2) * square
            )
        new = {name: value[name] + self.lr * first[name] / (second[name].sqrt() + self.tau) for name in change}
        return new, {"first": first, "second": second}


@dataclass(frozen=True)
class ServerOptimizer:
    """Any rule, then a server step on the change it asks for. Moments are trees `<tree>.<moment>` of the state."""

    step: ServerStep
    of: Aggregator = field(default_factory=Mean)

    @property
    def needs_each(self) -> str | None:
        """As the inner rule."""
        return getattr(self.of, "needs_each", None)

    @property
    def averages(self) -> str:
        """Which mean the inner rule reads and nothing else, if it says so."""
        return str(getattr(self.of, "averages", ""))

    def state(self, tree: str, value: Tree) -> Trees:
        """The step's moments and what the inner rule remembers."""
        moments = self.step.moments(value)
        return {**self.of.state(tree, value), **{f"{tree}.{name}": m for name, m in moments.items()}}

    def __call__(self, state: State, tree: str, replies: Replies) -> Trees:
        """Treat the inner rule's change as the pseudo-gradient."""
        new = self.of(state, tree, replies)
        value = state[tree]
        change = {name: new[tree][name] - value[name] for name in value}
        moments = {name: state[f"{tree}.{name}"] for name in self.step.moments(value)}
        moved, kept = self.step(value, change, moments)
        return {**new, tree: moved, **{f"{tree}.{name}": m for name, m in kept.items()}}


def stepped(rule: Aggregator, lr: float) -> Aggregator:
    """The rule's change times `lr`; at 1 the rule itself, to the bit."""
    return rule if lr == 1 else ServerOptimizer(FedAvgM(lr=lr, beta=0.0), rule)
