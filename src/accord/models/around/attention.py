"""How a sample weighs its neighbours (FedRANE's message passing), D features, one step:

    dot   e_ij = <W_r h_i, W_s h_j> / sqrt(D),   h_i' = [h_i +] sum_j alpha_ij W h_j          (the paper)
    gat   e_ij = LeakyReLU(<a, W_m h_i> + <b, W_m h_j>),   m heads with weights of their own,
          h_i' = [h_i +] mean_m ELU(sum_j alpha_ij W_m h_j)                                   (its published code)

alpha_i is the softmax of e_ij over the neighbours of i. `gat` is without the dropout of 0.2 that follows in that code.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from accord.core.tensors import Tree

Attention = Literal["dot", "gat"]

SLOPE = 0.1  # of the leaky ReLU, as in the published code


def draw(rng: np.random.Generator, kind: Attention, hops: int, heads: int, size: int) -> Tree:
    """First weights: dot's uniform in +-1/sqrt(D) as torch's linear layers, gat's Xavier's."""
    if kind == "dot":
        names = [f"{hop}.{name}" for hop in range(hops) for name in ("receive", "send", "value")]
        return {name: _uniform(rng, 1 / math.sqrt(size), (size, size)) for name in names}
    tree: Tree = {}
    for hop in range(hops):
        for head in range(heads):
            tree[f"{hop}.{head}.value"] = _uniform(rng, math.sqrt(3 / size), (size, size))
            for name in ("receive", "send"):  # halves of one layer from 2 D inputs to one output
                tree[f"{hop}.{head}.{name}"] = _uniform(rng, math.sqrt(6 / (2 * size + 1)), (size,))
    return tree


def attend(weights: Tree, hop: int, nodes: Tensor, graph: Tensor, *, edge_weight: bool, residual: bool) -> Tensor:
    """One step over `graph` [..., n, n]; the names of the weights say which kind it is.

    With `edge_weight` the attention is multiplied by A and made to sum to one again, otherwise A only says
    who is a neighbour. A node without neighbours stays as it is.
    """
    if f"{hop}.value" in weights:
        received, sent = nodes @ weights[f"{hop}.receive"].mT, nodes @ weights[f"{hop}.send"].mT
        scores = received @ sent.mT / math.sqrt(nodes.shape[-1])
        message = _shares(scores, graph, edge_weight) @ (nodes @ weights[f"{hop}.value"].mT)
    else:
        message = _heads(weights, hop, nodes, graph, edge_weight)
    alone = ~(graph > 0).any(-1, keepdim=True)
    return torch.where(alone, nodes, nodes + message if residual else message)


def _heads(weights: Tree, hop: int, nodes: Tensor, graph: Tensor, edge_weight: bool) -> Tensor:
    messages = []
    for head in range(sum(name.startswith(f"{hop}.") for name in weights) // 3):
        values = nodes @ weights[f"{hop}.{head}.value"].mT
        receives, sends = (values @ weights[f"{hop}.{head}.{name}"] for name in ("receive", "send"))
        scores = functional.leaky_relu(receives.unsqueeze(-1) + sends.unsqueeze(-2), SLOPE)
        messages.append(functional.elu(_shares(scores, graph, edge_weight) @ values))
    return torch.stack(messages).mean(0)


def _shares(scores: Tensor, graph: Tensor, edge_weight: bool) -> Tensor:
    """alpha [..., n, n], 0 where there is no edge."""
    graph = graph.to(scores.dtype)
    neighbours = graph > 0
    if edge_weight:  # alpha_ij A_ij / sum_j alpha_ij A_ij is a softmax too
        scores = scores + torch.where(neighbours, graph, 1.0).log()
    return scores.masked_fill(~neighbours, torch.finfo(scores.dtype).min).softmax(-1)


def _uniform(rng: np.random.Generator, bound: float, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(rng.uniform(-bound, bound, shape))
