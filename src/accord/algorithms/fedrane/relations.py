"""Local relational augmentation (FedRANE, section 3.3): samples borrow from their neighbours in the batch.

    Z~ = messages passed over a graph of the batch (`accord.models.around.relations`)
    L_CD = -mean_i log exp(s(i, i~) / tau) / sum_{j != i} exp(s(i, j) / tau)   over the 2n rows of [Z; Z~]

The module sits between the features Z and the head, which reads Z~.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

import accord.authoring as fl
from accord.core.disclosure import Declared, Disclosure
from accord.core.model import Out
from accord.core.types import weighted_mean
from accord.models.around.attention import draw
from accord.models.around.graph import standardise, unit
from accord.models.around.relations import Passing, shuffled

Similarity = Literal["pearson", "cosine"]
GRAPHS = 32  # built side by side when samples are judged one by one


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
class Relations(Passing, fl.Part):
    """The graph, the message passing and the contrastive term; trains the tree `relations` with the model."""

    problems = ("classification", "multilabel", "regression")
    needs = "one vector of features per sample"
    contrast: float = 0.2  # weight of L_CD
    tau: float = 0.8
    similarity: Similarity = "pearson"
    symmetric: bool = True

    @property
    def couples(self) -> bool:
        return True

    def state(self, model: fl.Model, world: fl.World) -> fl.Trees:
        """The weights of the message passing."""
        like = next(iter(model.init()[0].values()))
        first = draw(world.key.at("relations"), self.attention, self.hops, self.heads, model.num_features)
        return {"relations": {name: tensor.to(like) for name, tensor in first.items()}}

    def send(self, state: fl.State) -> fl.Trees:
        """The module goes down with the model."""
        return {"relations": state["relations"]}

    def trainable(self, job: fl.Job) -> fl.Trees:
        """Trained jointly with the model."""
        return {"relations": job.shared["relations"]}

    def discloses(self) -> Declared:
        return {"relations": Disclosure.UPDATE}

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        """And comes back with it."""
        return {"relations": carry["train"]["relations"]}, {}

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
        """Judged among each other, in graphs of up to `size` samples."""
        plain = model.reference(trees["model"], trees["buffers"], x).features
        augmented = self.among(trees["relations"], plain, size)
        return Out(model.head(trees["model"], augmented), augmented)

    def supported(self, model: fl.Model, trees: fl.Trees, x: Tensor, known: Tensor, size: int) -> Out:
        """Judged one by one: each sample in a graph with up to `size` - 1 of the known ones, always the same."""
        chosen = shuffled(len(known))[: size - 1].to(x.device)
        support = model.reference(trees["model"], trees["buffers"], known[chosen]).features
        plain = model.reference(trees["model"], trees["buffers"], x).features
        augmented = []
        for one in torch.split(plain, GRAPHS):
            nodes = torch.cat([support.expand(len(one), *support.shape), one.unsqueeze(1)], 1)
            everyone = torch.ones(nodes.shape[:-1], dtype=torch.bool, device=x.device)
            augmented.append(self.augment(trees["relations"], nodes, everyone)[:, -1])
        features = torch.cat(augmented)
        return Out(model.head(trees["model"], features), features)
