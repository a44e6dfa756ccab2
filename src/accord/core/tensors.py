"""Named sets of tensors and the few operations everything else is written with.

A `Tree` is one named set (`{"conv1.weight": ...}`), `Trees` a named set of those (`{"model": ..., "control": ...}`).
Names are kept sorted at every boundary: sums run in the order of the names, so the order is part of the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Tree = dict[str, Tensor]
Trees = dict[str, Tree]


def ordered(tree: Mapping[str, Tensor]) -> Tree:
    """The same tensors, names sorted."""
    return {name: tree[name] for name in sorted(tree)}


def ordered_trees(trees: Mapping[str, Mapping[str, Tensor]]) -> Trees:
    """The same trees, all names sorted."""
    return {name: ordered(trees[name]) for name in sorted(trees)}


def clone(tree: Mapping[str, Tensor]) -> Tree:
    """A copy that may be overwritten."""
    return {name: tensor.detach().clone() for name, tensor in tree.items()}


def zeros_like(tree: Mapping[str, Tensor]) -> Tree:
    """Zeros in the shape of `tree`."""
    return {name: torch.zeros_like(tensor) for name, tensor in tree.items()}


def add(a: Mapping[str, Tensor], b: Mapping[str, Tensor], scale: float | Tensor = 1.0) -> Tree:
    """`a + scale * b`."""
    return {name: a[name] + scale * b[name] for name in a}


def subtract(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Tree:
    """`a - b`."""
    return {name: a[name] - b[name] for name in a}


def scale(tree: Mapping[str, Tensor], factor: float | Tensor) -> Tree:
    """`factor * tree`."""
    return {name: factor * tensor for name, tensor in tree.items()}


def dot(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Tensor:
    """Inner product over all names, differentiable."""
    return torch.stack([(a[name] * b[name]).sum() for name in sorted(a)]).sum()


def squared_norm(tree: Mapping[str, Tensor]) -> Tensor:
    """Sum of squares over all names, differentiable."""
    return dot(tree, tree)


def flatten(tree: Mapping[str, Tensor]) -> Tensor:
    """All values in one vector, in the order of the sorted names."""
    return torch.cat([tree[name].reshape(-1) for name in sorted(tree)])


def join(trees: Mapping[str, Mapping[str, Tensor]]) -> Tree:
    """Trees as one flat tree with wire names: `control/conv1.weight`."""
    return {f"{name}/{leaf}": trees[name][leaf] for name in sorted(trees) for leaf in sorted(trees[name])}


def num_bytes(trees: Mapping[str, Mapping[str, Tensor]]) -> int:
    """Bytes of all values, as they would travel."""
    return sum(t.numel() * t.element_size() for tree in trees.values() for t in tree.values())


def finite(trees: Mapping[str, Mapping[str, Tensor]]) -> bool:
    """Whether every floating-point value is a number (the sum of a tensor is not, if one value is not)."""
    sums = [t.sum() for tree in trees.values() for t in tree.values() if t.is_floating_point()]
    if not sums:
        return True
    total = torch.stack([s.double() for s in sums])
    if bool(torch.isfinite(total).all()):
        return True
    # A huge but finite tensor can overflow its own sum: look at the values before calling it broken.
    return all(bool(torch.isfinite(t).all()) for tree in trees.values() for t in tree.values() if t.is_floating_point())


def is_stacked(tensor: Tensor) -> bool:
    """Whether it is one client's share of a stack, as `torch.vmap` shows it."""
    return bool(torch._C._functorch.is_batchedtensor(tensor))


def add_to(totals: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Many sums as one kernel."""
    if is_stacked(totals[0]):  # torch.vmap has no rule for it, and a compiler will fuse them
        for total, value in zip(totals, values, strict=True):
            total.add_(value)
    else:
        torch._foreach_add_(list(totals), list(values))


def normalised(x: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """`(x - mean) / std` along the axis after the samples."""
    if not mean:
        return x
    shape = (1, -1) + (1,) * (x.dim() - 2)
    return (x - x.new_tensor(mean).view(shape)) / x.new_tensor(std).view(shape)
