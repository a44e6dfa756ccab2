"""Server steps that look at the mean of the clients' models only: a damped move towards it, or its direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from accord.aggregate.mean import Mean
from accord.core.tensors import Tree, Trees
from accord.core.types import Replies, State

Decay = Literal["none", "linear"]


@dataclass(frozen=True)
class Reptile:
    """w <- w + eps (mean_k w_k - w), uniform; `linear` takes eps down to 0 over `rounds` rounds.

    Where eps decays, the rounds done are counted in the state, in the tree `<tree>.rounds`.
    """

    eps: float = 0.5
    decay: Decay = "none"
    rounds: int = 1
    needs_each: ClassVar[str] = ""
    averages: ClassVar[str] = "uniform"

    def state(self, tree: str, value: Tree) -> Trees:
        """The count of rounds, if eps depends on it."""
        return {f"{tree}.rounds": {"done": torch.tensor(0)}} if self.decay == "linear" else {}

    def __call__(self, state: State, tree: str, replies: Replies) -> Trees:
        """The move; eps = 1 is the mean itself, to the bit."""
        mean = Mean("uniform")(state, tree, replies)[tree]
        new: Trees = {}
        eps = self.eps
        if self.decay == "linear":
            done = state[f"{tree}.rounds"]["done"]
            eps = self.eps * max(0.0, 1 - int(done) / self.rounds)
            new[f"{tree}.rounds"] = {"done": done + 1}
        old = state[tree]
        new[tree] = {
            name: value if eps == 1 or not value.is_floating_point() else old[name] + eps * (value - old[name])
            for name, value in mean.items()
        }
        return new


@dataclass(frozen=True)
class Rprop:
    """Every weight moves by a step size of its own, against the sign of g = w - mean_k w_k; |g| is ignored.

    A step size grows by `faster` when the sign repeats and shrinks by `slower` when it flips, within [low, high].
    Step sizes and signs are trees `<tree>.step` and `<tree>.sign` of the state.
    """

    first: float = 1e-3
    faster: float = 1.2
    slower: float = 0.5
    low: float = 1e-7
    high: float = 0.1
    needs_each: ClassVar[str] = ""
    averages: ClassVar[str] = "uniform"

    def state(self, tree: str, value: Tree) -> Trees:
        """Equal steps, no signs yet."""
        weights = {name: t for name, t in value.items() if t.is_floating_point()}
        return {
            f"{tree}.step": {name: torch.full_like(t, self.first) for name, t in weights.items()},
            f"{tree}.sign": {name: torch.zeros_like(t) for name, t in weights.items()},
        }

    def __call__(self, state: State, tree: str, replies: Replies) -> Trees:
        """New step sizes, then the move."""
        mean = Mean("uniform")(state, tree, replies)[tree]
        old, steps, signs = state[tree], dict(state[f"{tree}.step"]), dict(state[f"{tree}.sign"])
        for name in steps:
            sign = (old[name] - mean[name]).sign()
            agreement = sign * signs[name]  # 0 where either is: the step size stays
            factor = torch.ones_like(sign).masked_fill_(agreement > 0, self.faster)
            factor.masked_fill_(agreement < 0, self.slower)
            steps[name] = (steps[name] * factor).clamp_(self.low, self.high)
            signs[name] = sign
            mean[name] = old[name] - steps[name] * sign
        return {tree: mean, f"{tree}.step": steps, f"{tree}.sign": signs}
