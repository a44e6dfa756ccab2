"""Local relational augmentation (FedRANE, section 3.3): samples borrow from their neighbours in the batch.

    graph A over the batch (`accord.algorithms.fedrane.graph`), N_i = {j != i: A_ij > 0}
    e_ij = <W_r h_i, W_s h_j> / sqrt(D),   alpha_i = softmax of e_ij over j in N_i
    h_i' = [h_i +] sum_j alpha_ij W h_j,   from h = Z to h = Z~ in `hops` steps
    L_CD = -mean_i log exp(s(i, i~) / tau) / sum_{j != i} exp(s(i, j) / tau)   over the 2n rows of [Z; Z~]

The module sits between the features Z and the head, which reads Z~.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

import accord.authoring as fl
from accord.algorithms.fedrane.graph import GraphMode, adjacency, standardise, unit
from accord.core.model import Out
from accord.core.types import weighted_mean

Similarity = Literal["pearson", "cosine"]
GRAPHS = 32  # built side by side when samples are judged one by one


def attend(weights: fl.Tree, hop: int, nodes: Tensor, graph: Tensor, *, edge_weight: bool, residual: bool) -> Tensor:
    """One step of message passing over `graph` [..., n, n]; a node without neighbours stays as it is.

    With `edge_weight` the attention is multiplied by A and made to sum to one again, otherwise A only says
    who is a neighbour.
    """
    received, sent = nodes @ weights[f"{hop}.receive"].mT, nodes @ weights[f"{hop}.send"].mT
    scores = received @ sent.mT / math.sqrt(nodes.shape[-1])
    graph = graph.to(scores.dtype)
    neighbours = graph > 0
    if edge_weight:  # alpha_ij A_ij / sum_j alpha_ij A_ij is a softmax too
        scores = scores + torch.where(neighbours, graph, 1.0).log()
    scores = scores.masked_fill(~neighbours, torch.finfo(scores.dtype).min)
    message = scores.softmax(-1) @ (nodes @ weights[f"{hop}.value"].mT)
    alone = ~neighbours.any(-1, keepdim=True)
    return torch.where(alone, nodes, nodes + message if residual else message)


def keep_strongest(graph: Tensor, count: int) -> Tensor:
    """Every row's `count` largest entries; the others become 0."""
    if count >= graph.shape[-1]:
        return graph
    values, places = graph.topk(count, dim=-1)
    return torch.zeros_like(graph).scatter(-1, places, values)


def discrimination(
    before: Tensor,
    after: Tensor,
    weight: Tensor,
    *,
    tau: float,
    similarity: Similarity,
    symmetric: bool,
    eps: float,
) -> Tensor:
    """L_CD of Z and Z~ [n, D]: each sample's two views are a pair, all other rows of both are negatives.

    The anchors are the rows of Z (the paper), or of both (`symmetric`, the authors' code).
    """
    count = len(before)
    both = torch.cat([before, after])
    rows = standardise(both, eps) if similarity == "pearson" else unit(both, eps)
    scores = rows @ rows.mT / tau
    left_out = torch.eye(2 * count, dtype=torch.bool, device=rows.device) | (weight == 0).repeat(2)
    positive = torch.cat([scores.diagonal(count), scores.diagonal(-count)])
    losses = scores.masked_fill(left_out, torch.finfo(scores.dtype).min).logsumexp(-1) - positive
    anchors = 2 * count if symmetric else count
    return weighted_mean(losses[:anchors], weight.repeat(2)[:anchors])


@dataclass(frozen=True)
class Relations(fl.Part):
    """The graph, the message passing and the contrastive term; trains the tree `relations` with the model."""

    problems = ("classification", "multilabel", "regression")
    needs = "one vector of features per sample"
    graph: GraphMode = "official"
    lam: float = 0.1  # weight of the low-rank term, lambda_B
    eps: float = 0.01
    hops: int = 1
    edge_weight: bool = True
    top_k: int = 0  # 0: all neighbours
    residual: bool = True
    contrast: float = 0.2  # weight of L_CD
    tau: float = 0.8
    similarity: Similarity = "pearson"
    symmetric: bool = True

    @property
    def couples(self) -> bool:
        return True

    def state(self, model: fl.Model, world: fl.World) -> fl.Trees:
        """W, W_r and W_s of every hop, uniform in +-1/sqrt(D) as torch's linear layers."""
        rng, size = world.key.at("relations"), model.num_features
        like = next(iter(model.init()[0].values()))
        return {
            "relations": {
                f"{hop}.{name}": _uniform(rng, size).to(like)
                for hop in range(self.hops)
                for name in ("receive", "send", "value")
            }
        }

    def send(self, state: fl.State) -> fl.Trees:
        """The module goes down with the model."""
        return {"relations": state["relations"]}

    def trainable(self, job: fl.Job) -> fl.Trees:
        """Trained jointly with the model."""
        return {"relations": job.shared["relations"]}

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        """And comes back with it."""
        return {"relations": carry["train"]["relations"]}, {}

    def augment(self, weights: fl.Tree, features: Tensor, mask: Tensor) -> Tensor:
        """Z~ [..., n, D] of Z; rows outside `mask` [..., n] are nobody's neighbours."""
        graph = adjacency(features, mask, self.graph, self.lam, self.eps)
        if self.top_k:
            graph = keep_strongest(graph, self.top_k)
        options = {"edge_weight": self.edge_weight, "residual": self.residual}
        for hop in range(self.hops):
            features = attend(weights, hop, features, graph, **options)
        return features

    def forward(self, model: fl.Model, job: fl.Job, carry: fl.Carry, params: fl.Trees, batch: fl.Batch) -> Out:
        """The task's forward: the head reads Z~. Z is left in the corner for the contrastive term."""
        plain = model.train(params["model"], carry["buffers"], batch.x).features
        augmented = self.augment(params["relations"], plain, batch.weight > 0)
        carry[self.name]["plain"] = plain
        return Out(model.head(params["model"], augmented), augmented)

    def loss(self, view: fl.View) -> fl.Term | None:
        """lambda_CD L_CD; nothing at 0."""
        plain = view.carry[self.name].pop("plain")
        if self.contrast == 0:
            return None
        apart = discrimination(
            plain,
            view.out.features,
            view.batch.weight,
            tau=self.tau,
            similarity=self.similarity,
            symmetric=self.symmetric,
            eps=self.eps,
        )
        return view.whole(self.contrast * apart)

    def together(self, model: fl.Model, trees: fl.Trees, x: Tensor, size: int) -> Out:
        """Judged among each other: graphs of up to `size` samples, about equally large, after a fixed shuffle.

        Samples often come sorted by class, and a graph of one class would give the class away.
        """
        plain = model.reference(trees["model"], trees["buffers"], x).features
        order = _shuffled(len(x)).to(x.device)
        everyone = torch.ones_like(order, dtype=torch.bool)
        augmented = torch.empty_like(plain)
        for rows in order.tensor_split(max(math.ceil(len(x) / size), 1)):
            augmented[rows] = self.augment(trees["relations"], plain[rows], everyone[rows])
        return Out(model.head(trees["model"], augmented), augmented)

    def supported(self, model: fl.Model, trees: fl.Trees, x: Tensor, known: Tensor, size: int) -> Out:
        """Judged one by one: each sample in a graph with up to `size` - 1 of the known ones, always the same."""
        chosen = _shuffled(len(known))[: size - 1].to(x.device)
        support = model.reference(trees["model"], trees["buffers"], known[chosen]).features
        plain = model.reference(trees["model"], trees["buffers"], x).features
        augmented = []
        for one in torch.split(plain, GRAPHS):
            nodes = torch.cat([support.expand(len(one), *support.shape), one.unsqueeze(1)], 1)
            everyone = torch.ones(nodes.shape[:-1], dtype=torch.bool, device=x.device)
            augmented.append(self.augment(trees["relations"], nodes, everyone)[:, -1])
        features = torch.cat(augmented)
        return Out(model.head(trees["model"], features), features)


def _uniform(rng: np.random.Generator, size: int) -> Tensor:
    bound = 1 / math.sqrt(size)
    return torch.from_numpy(rng.uniform(-bound, bound, (size, size)))


def _shuffled(count: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))
