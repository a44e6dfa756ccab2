"""Averages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from accord.core.algorithm import Aggregator
from accord.core.tensors import Tree, Trees
from accord.core.types import Replies, State

Weighting = Literal["examples", "uniform"]


@dataclass(frozen=True)
class Mean:
    """w = sum_k a_k w_k, a_k = n_k / sum n (`examples`) or 1 / m (`uniform`); names nobody sent stay as they are."""

    weight: Weighting = "examples"
    needs_each: ClassVar[str] = ""

    @property
    def averages(self) -> Weighting:
        """It reads this mean and nothing else, so a mean of parts will do."""
        return self.weight

    def state(self, tree: str, value: Tree) -> Trees:
        return {}

    def __call__(self, state: State, tree: str, replies: Replies) -> Trees:
        return {tree: {**state[tree], **replies.mean(tree, self.weight)}}


@dataclass(frozen=True)
class EMA:
    """w <- (1 - keep) * rule(w) + keep * w."""

    keep: float
    of: Aggregator = field(default_factory=Mean)

    @property
    def needs_each(self) -> str | None:
        """As the inner rule."""
        return getattr(self.of, "needs_each", None)

    @property
    def averages(self) -> str:
        """As the inner rule."""
        return str(getattr(self.of, "averages", ""))

    def state(self, tree: str, value: Tree) -> Trees:
        """What the inner rule remembers."""
        return self.of.state(tree, value)

    def __call__(self, state: State, tree: str, replies: Replies) -> Trees:
        """Blend the inner rule's result with the present value."""
        new = self.of(state, tree, replies)
        blend = {
            name: (1 - self.keep) * value + self.keep * state[tree][name] if value.is_floating_point() else value
            for name, value in new[tree].items()
        }
        return {**new, tree: blend}
