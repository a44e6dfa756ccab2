"""Nash bargaining over the clients' deviations (FedRANE, section 3.4): one step every client gains from.

D_k = w_k - w_t are all uploaded parameters of client k, G = [D_1 ... D_K]. The step G p that maximises
sum_k b_k log <D_k, G p> over a ball satisfies

    (G^T G p)_k = b_k / p_k,   p > 0,

which is where f(p) = 1/2 p^T G^T G p - sum_k b_k log p_k has its only minimum. b is the bargaining power: all ones in
the paper; in proportion to the clients' samples it gives the asymmetric solution. Multiplying a D_k by a number
divides p_k by it and leaves G p alone, so weighting the deviations themselves would change nothing.

A solution exists unless some p >= 0 other than 0 has G p = 0: then no step helps everyone, and the FedAvg step is
taken instead. With b summing to K, |G p| = sqrt(K) whatever the clients' steps were, so p is a direction without
a length; `scale` gives it one.

Where deviations are far from parallel, p_k is about 1 / |D_k|: every client has the same say, whatever its length. One
client that jumped far makes FedAvg's step long, and a bargained step of that length would move along all the
others' deviations many times over. So under `avg-norm` the weights may not sum to more than `cap`; FedAvg's sum to 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from accord.aggregate.blocks import stacked_blocks
from accord.aggregate.mean import Weighting
from accord.core.tensors import Tree, Trees
from accord.core.types import Replies, State

Scale = Literal["sum", "raw", "radius", "avg-norm"]
Array = np.ndarray[Any, np.dtype[np.float64]]

ITERATIONS = 200
TOLERANCE = 1e-12  # of the equations, relative to b, above what rounding leaves of them
LARGEST = 1e4  # unit deviations whose convex hull comes nearer to 0 than about 1 / LARGEST are said to cancel


def solve_bargaining(gram: Array, power: Array | None = None) -> Array | None:
    """p with (gram p)_k = power_k / p_k; None when there is none. A client that did not move has p_k = 0.

    Newton's method in relative steps r, p_k <- p_k (1 + t r_k), on deviations scaled to unit length:
    (diag(p) gram diag(p) + diag(b)) r = b - p * (gram p), whose matrix is positive definite. With m = max_k -r_k,
    t = 1 / (1 + m) always lowers f, since along the step f'' is at most f''(0) / (1 - t m)^2; near the minimum full
    steps double the number of digits.

    >>> solve_bargaining(np.array([[4.0, 0.0], [0.0, 1.0]]))
    array([0.5, 1. ])
    """
    lengths = np.sqrt(np.diag(gram))
    moved = np.flatnonzero(lengths)
    result = np.zeros(len(gram))
    if not len(moved):
        return result
    lengths = lengths[moved]
    cosines = gram[np.ix_(moved, moved)] / lengths[:, None] / lengths[None, :]
    b = np.ones(len(moved)) if power is None else power[moved]
    p = np.sqrt(b)  # the solution where nobody agrees or disagrees
    for _ in range(ITERATIONS):
        missing = b - p * (cosines @ p)
        rounding = 2 * np.finfo(np.float64).eps * p * (np.abs(cosines) @ p)
        if np.all(np.abs(missing) <= TOLERANCE * b + rounding):
            result[moved] = p / lengths
            return result
        r = np.linalg.solve(p[:, None] * cosines * p[None, :] + np.diag(b), missing)
        step = 1.0 if np.max(np.abs(r)) < 0.25 else 1 / (1 + max(-float(np.min(r)), 0.0))
        p = p * (1 + step * r)
        if not np.max(p) < LARGEST:
            return None
    return None


@dataclass(frozen=True)
class Nash:
    """w <- w + sum_k p_k D_k for the tree this rule is registered under and those in `also`, as one bargain.

    `scale`, the length of the step: `sum`, p / sum(p), a convex combination as FedAvg's; `avg-norm`, as long as
    FedAvg's step, but with weights that sum to `cap` at most; `radius`, a given length (0: the number of clients);
    `raw`, sqrt(K).
    Rounds with and without an agreement are counted in the state, in the tree `<tree>.nash`, and reported.
    """

    also: tuple[str, ...] = ()
    scale: Scale = "avg-norm"
    power: Weighting = "examples"
    radius: float = 0.0
    cap: float = math.inf
    needs_each: ClassVar[str] = "bargains between the clients' changes"

    def state(self, tree: str, value: Tree) -> Trees:
        zero = torch.zeros((), dtype=torch.int64)
        return {f"{tree}.nash": {"agreed": zero, "fallbacks": zero.clone()}}

    def report(self, state: State, tree: str) -> dict[str, float]:
        """The counters so far."""
        return {f"nash_{name}": int(count) for name, count in state[f"{tree}.nash"].items()}

    def __call__(self, state: State, tree: str, replies: Replies) -> Trees:
        """The bargain's step, or FedAvg's when there is no agreement."""
        names = (tree, *self.also)
        gram = gram_matrix(state, names, replies)
        p = solve_bargaining(gram, len(replies) * replies.weights(self.power).numpy())
        counter = "fallbacks" if p is None else "agreed"
        counts = {name: n + (name == counter) for name, n in state[f"{tree}.nash"].items()}
        if p is None:
            new = {name: {**state[name], **replies.mean(name)} for name in names}
        else:
            weights = p * self._factor(p, gram, replies)
            new = {name: {**state[name], **_moved(state[name], replies, name, weights)} for name in names}
        return {**new, f"{tree}.nash": counts}

    def _factor(self, p: Array, gram: Array, replies: Replies) -> float:
        """What p is multiplied by; nobody moved: anything."""
        if self.scale == "raw" or not p.any():
            return 1.0
        if self.scale == "sum":
            return 1 / float(p.sum())
        average = replies.weights().numpy()
        squared = (self.radius or len(replies)) ** 2 if self.scale == "radius" else float(average @ gram @ average)
        factor = math.sqrt(squared / float(p @ gram @ p))
        return min(factor, self.cap / float(p.sum())) if self.scale == "avg-norm" else factor


def gram_matrix(state: State, trees: tuple[str, ...], replies: Replies) -> Array:
    """[K, K] inner products of the clients' deviations over all the trees, in float64, by blocks of parameters."""
    total: Tensor | None = None
    for tree in trees:
        for leaf in sorted(replies.results[0].reply[tree]):
            start = state[tree][leaf].reshape(-1)
            for part, sent in stacked_blocks(replies, tree, leaf):
                rows = sent.sub_(start[part])
                total = rows @ rows.mT if total is None else total.addmm_(rows, rows.mT)
    return np.zeros((len(replies), len(replies))) if total is None else total.cpu().numpy()


def _moved(server: Tree, replies: Replies, tree: str, weights: Array) -> Tree:
    """Summed in float64, one client after the other."""
    start = {leaf: server[leaf].double() for leaf in replies.results[0].reply[tree]}
    step = {leaf: torch.zeros_like(value) for leaf, value in start.items()}
    for sent, weight in zip(replies.each(tree), weights.tolist(), strict=True):
        for leaf, value in start.items():
            step[leaf].add_(sent[leaf] - value, alpha=weight)
    return {leaf: (value + step[leaf]).to(server[leaf].dtype) for leaf, value in start.items()}
