"""A small fully connected network as plain tensors: the discriminators and projectors some methods train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from accord.core.tensors import Tree


def init_mlp(rng: np.random.Generator, sizes: Sequence[int]) -> Tree:
    """`0.weight` [out, in], `0.bias` [out], `1.weight`, ...; uniform in +-1 / sqrt(in), as torch's Linear."""
    tree: Tree = {}
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        bound = 1 / np.sqrt(inputs)
        for leaf, shape in (("weight", (outputs, inputs)), ("bias", (outputs,))):
            values = torch.from_numpy(rng.uniform(-bound, bound, shape))
            tree[f"{layer}.{leaf}"] = values.to(torch.get_default_dtype())
    return tree


def mlp(tree: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """The layers in turn, ReLU between them and none after the last."""
    depth = len(tree) // 2
    for layer in range(depth):
        x = functional.linear(x, tree[f"{layer}.weight"], tree[f"{layer}.bias"])
        if layer + 1 < depth:
            x = functional.relu(x)
    return x
