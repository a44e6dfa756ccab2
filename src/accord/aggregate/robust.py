"""Rules that hold when some clients send anything they like.

k answers, all alike: how many samples a client has is its own claim, so no rule here weighs by it. Values that are not
numbers count as infinitely far away. Integer tensors are counters, of which the largest is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from accord.aggregate.blocks import stacked_blocks
from accord.aggregate.mean import Mean
from accord.core.algorithm import Aggregator
from accord.core.tensors import Tree, Trees, add
from accord.core.types import Replies, State
from accord.errors import RunError


def number_of(count: int, share: float) -> int:
    """How many of `count` a share is, rounded down; 0.29 of 100 is 29 although their product is not."""
    return int(share * count + 1e-9)


def _each_weight(tree: str, state: State, replies: Replies, rule: Callable[[Tensor], Tensor]) -> Trees:
    """`rule` on the sorted [k, ...] values of every tensor, one tensor at a time."""
    new: Tree = dict(state[tree])
    for name in next(replies.each(tree)):
        values = torch.stack([one[name] for one in replies.each(tree)])
        new[name] = rule(values.sort(0).values) if values.is_floating_point() else values.amax(0)
    return {tree: new}


@dataclass(frozen=True)
class Median:
    """The median of every weight over the clients; for an even number the mean of the two in the middle."""

    needs_each: ClassVar[str] = "takes the median of the clients' values"

    def state(self, tree: str, value: Tree) -> Trees:
        return {}

    def __call__(self, state: State, tree: str, replies: Replies) -> Trees:
        low, high = (len(replies) - 1) // 2, len(replies) // 2
        return _each_weight(tree, state, replies, lambda values: (values[low] + values[high]) / 2)


@dataclass(frozen=True)
class TrimmedMean:
    """The mean of every weight over the clients without its `trim` share of lowest and of highest values."""

    trim: float = 0.1
    needs_each: ClassVar[str] = "leaves out the lowest and the highest of the clients' values"

    def state(self, tree: str, value: Tree) -> Trees:
        return {}

    def __call__(self, state: State, tree: str, replies: Replies) -> Trees:
        """Weight by weight; when there is nothing to trim it is the uniform mean, to the bit."""
        cut = number_of(len(replies), self.trim)
        if cut == 0:
            return Mean("uniform")(state, tree, replies)
        return _each_weight(tree, state, replies, lambda values: values[cut:-cut].mean(0))


@dataclass(frozen=True)
class Krum:
    """The mean of the `keep` models with the nearest neighbours (1: Krum, more: multi-Krum, 0: all but f).

    Of k models f = `hostile` * k are taken to be hostile, rounded down. A model's score is the sum of its squared
    distances to its k - f - 2 nearest others. Every tree is averaged over the clients chosen by `by`.
    """

    hostile: float = 0.2
    keep: int = 1
    by: str = "model"
    needs_each: ClassVar[str] = "compares the clients' models"

    def state(self, tree: str, value: Tree) -> Trees:
        return {}

    def __call__(self, state: State, tree: str, replies: Replies) -> Trees:
        """Choose, then average in the order of the clients' ids."""
        if not state[tree]:
            return {}  # no buffers: nobody need be chosen for them
        chosen = self.choose(replies)
        ids = tuple(replies.ids[i] for i in chosen)
        results = tuple(replies.results[i] for i in chosen)
        kept = Replies(ids, results, replies.examples[chosen], replies.missing)
        return Mean("uniform")(state, tree, kept)

    def choose(self, replies: Replies) -> list[int]:
        """Positions of the chosen clients, in order; of equals the first."""
        count = len(replies)
        f = number_of(count, self.hostile)
        if f and count < 2 * f + 3:
            raise RunError(
                f"krum cannot bear {f} hostile clients among {count} answers: it needs at least {2 * f + 3}; "
                f"ask more clients in a round, or lower algorithm.hostile (now {self.hostile:g})"
            )
        if count < 3:  # no two models to compare with: nothing speaks against either
            return list(range(min(self.keep or count, count)))
        nearest = squared_distances(replies, self.by).sort(1).values[:, 1 : max(count - f - 2, 1) + 1]
        order = nearest.sum(1).sort(stable=True).indices[: self.keep or count - f]
        return sorted(order.tolist())


def squared_distances(replies: Replies, tree: str) -> Tensor:
    """[k, k] float64 between the clients' trees; infinite where either is not finite, 0 on the diagonal."""
    total = torch.zeros(len(replies), len(replies), dtype=torch.float64)
    for name, value in next(replies.each(tree)).items():
        if value.is_floating_point():
            for _, flat in stacked_blocks(replies, tree, name):
                total += torch.stack([(flat - row).square_().sum(1) for row in flat]).cpu()
    return total.masked_fill_(total.isnan(), torch.inf).fill_diagonal_(0)


@dataclass(frozen=True)
class NormClip:
    """Every client's change is scaled down to a norm of at most `limit`, then `of` folds the models in."""

    limit: float
    of: Aggregator = field(default_factory=Mean)
    needs_each: ClassVar[str] = "scales each client's change by its length"

    def state(self, tree: str, value: Tree) -> Trees:
        """What the inner rule remembers."""
        return self.of.state(tree, value)

    def __call__(self, state: State, tree: str, replies: Replies) -> Trees:
        """A model within the limit passes untouched; one that is not finite counts as no change."""
        results = tuple(
            result._replace(reply={**result.reply, tree: self.clipped(state[tree], result.reply[tree])})
            for result in replies.results
        )
        return self.of(state, tree, replace(replies, results=results))

    def clipped(self, start: Tree, model: Tree) -> Tree:
        """start + (model - start) * min(1, limit / norm)."""
        begun = {name: start[name] for name, t in model.items() if t.is_floating_point()}
        change = {name: model[name] - old for name, old in begun.items()}
        norm = sum(float(t.double().square().sum()) for t in change.values()) ** 0.5
        if norm <= self.limit:
            return model
        return {**model, **(add(begun, change, self.limit / norm) if math.isfinite(norm) else begun)}
