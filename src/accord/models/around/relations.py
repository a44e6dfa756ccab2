"""Message passing between a network's features and its head (FedRANE, section 3.3): samples borrow from one another.

    graph A over the samples (`accord.models.around.graph`), N_i = {j != i: A_ij > 0}
    messages over N_i (`accord.models.around.attention`), from h = Z to h = Z~ in `hops` steps

The head reads Z~. An answer depends on the samples that are shown with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, cast, get_args

import numpy as np
import torch
from torch import Tensor, nn

from accord.core.model import Classifier
from accord.core.tensors import Tree
from accord.core.whole import Settings, Whole
from accord.errors import DataError
from accord.models.around.attention import Attention, attend, draw
from accord.models.around.graph import SOLVERS, GraphMode, adjacency

MOST = 1 << 16  # hops, features and samples of a graph that a folder may ask for
LARGEST = 1 << 28  # numbers in the weights of its messages


def keep_strongest(graph: Tensor, count: int) -> Tensor:
    """Every row's `count` largest entries; the others become 0."""
    if count >= graph.shape[-1]:
        return graph
    values, places = graph.topk(count, dim=-1)
    return torch.zeros_like(graph).scatter(-1, places, values)


@dataclass(frozen=True)
class Passing:
    """How the graph is made, and how often and how messages are passed over it."""

    graph: GraphMode = "official"
    lam: float = 0.1  # weight of the low-rank term, lambda_B
    eps: float = 0.01
    hops: int = 1
    edge_weight: bool = True
    top_k: int = 0  # 0: all neighbours
    residual: bool = True
    attention: Attention = "dot"
    heads: int = 2  # of gat

    def augment(self, weights: Tree, features: Tensor, mask: Tensor) -> Tensor:
        """Z~ [..., n, D] of Z; rows outside `mask` [..., n] are nobody's neighbours."""
        graph = adjacency(features, mask, self.graph, self.lam, self.eps)
        if self.top_k:
            graph = keep_strongest(graph, self.top_k)
        options = {"edge_weight": self.edge_weight, "residual": self.residual}
        for hop in range(self.hops):
            features = attend(weights, hop, features, graph, **options)
        return features

    def among(self, weights: Tree, plain: Tensor, size: int) -> Tensor:
        """Z~ of samples among each other: graphs of up to `size`, about equally large, after a fixed shuffle.

        Samples often come sorted by class, and a graph of one class would give the class away.
        """
        order = shuffled(len(plain)).to(plain.device)
        everyone = torch.ones_like(order, dtype=torch.bool)
        augmented = torch.empty_like(plain)
        for rows in order.tensor_split(max(math.ceil(len(plain) / size), 1)):
            augmented[rows] = self.augment(weights, plain[rows], everyone[rows])
        return augmented


def shuffled(count: int) -> Tensor:
    """One fixed order."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))


class Related(Whole):
    """The network with message passing before its head, among the samples of a call."""

    kind: ClassVar[str] = "relations"
    together: ClassVar[bool] = True

    def __init__(self, network: nn.Module, passing: Passing, size: int, weights: Mapping[str, Tensor]) -> None:
        super().__init__(network)
        self.passing, self.size = passing, size
        self._names = {name: name.replace(".", "_") for name in weights}  # as a module may have them
        self.weights = nn.ParameterDict({self._names[name]: nn.Parameter(t, False) for name, t in weights.items()})

    def forward(self, x: Tensor) -> Tensor:
        """[B, C] logits."""
        network = cast(Classifier, self.network)
        weights = {name: self.weights[own] for name, own in self._names.items()}
        augmented = self.passing.among(weights, network.logits_and_features(x)[1], self.size)
        logits: Tensor = self.network.get_submodule(network.head_name)(augmented)
        return logits

    def settings(self) -> Settings:
        plain = {item.name: getattr(self.passing, item.name) for item in fields(Passing)}
        return {"size": self.size, "features": cast(Classifier, self.network).num_features, **plain}

    @classmethod
    def blank(cls, network: nn.Module, size: int, features: int, **passing: Any) -> Related:
        """To be filled with values; DataError for settings it cannot have."""
        made = Passing(**passing)
        numbers = {"size": size, "features": features, "hops": made.hops, "heads": made.heads}
        if any(type(value) is not int or not 0 < value <= MOST for value in numbers.values()):
            raise DataError(f"{', '.join(numbers)} of message passing must be whole numbers from 1 to {MOST}")
        if 3 * made.hops * made.heads * features**2 > LARGEST:
            raise DataError(f"message passing of {made.hops} hops over {features} features is too large")
        real = (made.lam, made.eps, made.top_k)
        if made.graph not in SOLVERS or any(type(value) not in (int, float) or value < 0 for value in real):
            raise DataError(f"lam, eps and top_k of message passing must be numbers, graph one of {', '.join(SOLVERS)}")
        if made.attention not in get_args(Attention):
            raise DataError(f"attention of message passing must be one of {', '.join(get_args(Attention))}")
        blank = draw(np.random.default_rng(0), made.attention, made.hops, made.heads, features)
        return cls(network, made, size, {name: torch.zeros(tensor.shape) for name, tensor in blank.items()})
