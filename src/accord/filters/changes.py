"""A client's answer as a change: what it adds to the trees the server sent under the same names.

Where a tree or a tensor was not sent down (a control variate's change), the answer itself is the change.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from accord.core.tensors import Tree, Trees

OWN = "filter."  # how trees of filters are called, on the wire and in a client's memory
STEPS = f"{OWN}steps."


def about(name: str) -> str:
    """The tree on the wire that a filter's belongs to; itself where it is none."""
    return name.removeprefix(STEPS) if name.startswith(STEPS) else name.removeprefix(OWN)


def base_of(shared: Mapping[str, Tree], tree: str, leaf: str, like: Tensor) -> Tensor | None:
    """What the server sent in this place; None where it sent nothing of that shape."""
    sent = shared.get(tree, {}).get(leaf)
    if sent is None or sent.shape != like.shape or not sent.is_floating_point():
        return None
    return sent.to(like.device)


def real(tree: Mapping[str, Tensor]) -> list[str]:
    """The names of a tree's tensors of real numbers, sorted."""
    return [leaf for leaf in sorted(tree) if tree[leaf].is_floating_point()]


def changes(shared: Mapping[str, Tree], reply: Mapping[str, Tree]) -> Trees:
    """Every tensor of real numbers less what was sent, in float64."""
    found: Trees = {}
    for name in sorted(reply):
        found[name] = {}
        for leaf in real(reply[name]):
            value = reply[name][leaf]
            base = base_of(shared, name, leaf, value)
            found[name][leaf] = value.double() if base is None else value.double() - base.double()
    return found


def applied(shared: Mapping[str, Tree], reply: Mapping[str, Tree], changed: Mapping[str, Tree]) -> Trees:
    """The reply with these changes in the place of its own; all else, and every type of number, as it was."""
    new: Trees = {}
    for name in sorted(reply):
        new[name] = dict(reply[name])
        for leaf in real(reply[name]):
            value, change = reply[name][leaf], changed[name][leaf]
            base = base_of(shared, name, leaf, value)
            new[name][leaf] = (change if base is None else base.double() + change).to(value.dtype)
    return new


def norm(changed: Mapping[str, Tree]) -> float:
    """The length of all trees as one vector."""
    squares = [float(t.double().square().sum()) for tree in changed.values() for t in tree.values()]
    return float(np.sqrt(np.sum(squares)))


def clipped(changed: Mapping[str, Tree], limit: float) -> Trees:
    """All trees as one vector, scaled down to a length of at most `limit`; what is no number counts as no change."""
    length = norm(changed)
    if length <= limit:
        return {name: dict(tree) for name, tree in changed.items()}
    if not np.isfinite(length):
        return {name: {leaf: torch.zeros_like(t) for leaf, t in tree.items()} for name, tree in changed.items()}
    factor = limit / length * (1 - 1e-12)  # products are rounded: a hair less keeps the length at the limit
    return {name: {leaf: t * factor for leaf, t in tree.items()} for name, tree in changed.items()}


def noised(changed: Mapping[str, Tree], deviation: float, rng: np.random.Generator) -> Trees:
    """Every value with Gaussian noise of its own, drawn in the order of the names."""
    return {
        name: {
            leaf: t + torch.from_numpy(deviation * rng.standard_normal(t.numel())).view(t.shape).to(t)
            for leaf, t in sorted(changed[name].items())
        }
        for name in sorted(changed)
    }
