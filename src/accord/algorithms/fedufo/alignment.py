"""Adversarial feature alignment (FedUFO's UAD): features from which no discriminator can tell the client.

B samples, m clients in the group, D features, K discriminator outputs. The discriminator learns to name the
client whose model made a feature; the model learns features on which its answer is uniform.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

import accord.authoring as fl
from accord.algorithms.fedufo.peers import Peers, outputs
from accord.core.disclosure import Declared, Disclosure
from accord.core.keys import Key
from accord.core.model import Out
from accord.core.optim import SGD
from accord.core.plan import Plan
from accord.core.task import gradient_of
from accord.core.tensors import clone
from accord.core.types import weighted_mean
from accord.parts.lookup import in_chunks
from accord.parts.mlp import init_mlp, mlp

DiscClasses = Literal["all", "group"]
DiscHome = Literal["server", "client", "fresh"]
DiscTrain = Literal["round", "batch"]


def uniform_loss(logits: Tensor) -> Tensor:
    """[B] -(1 / K) sum_j log softmax(logits)_j: log K where the answer is uniform, more anywhere else."""
    return -logits.log_softmax(-1).mean(-1)


def naming_loss(logits: Tensor, labels: Tensor, own: Tensor) -> Tensor:
    """[B] cross-entropy of naming the owner of m features of one sample, from [B, m, K] logits.

    The client's own feature counts 1, each of the others 1 / (m - 1).
    """
    named = logits.log_softmax(-1).gather(-1, labels.expand(logits.shape[:-1]).unsqueeze(-1)).squeeze(-1)
    others = 1 / max(len(labels) - 1, 1)
    return -(named * torch.where(own, 1.0, others).to(named.dtype)).sum(1)


@dataclass(frozen=True)
class Discriminator:
    """How it is made and trained: `layers` linear layers with ReLU between them, `hidden` wide (0: D), K outputs.

    classes: `all` has an output per client of the federation, `group` one per member of the round's group.
    home: `server` is averaged like the model, `client` stays in the client's memory, `fresh` is drawn anew
    for every client and round.
    train: `round` follows `plan` after the model's last step, `batch` takes a step after each of the model's.
    """

    classes: DiscClasses = "all"
    home: DiscHome = "server"
    train: DiscTrain = "round"
    layers: int = 2
    hidden: int = 0
    rate: float = 0.01  # times the local one
    optimizer: SGD = field(default_factory=SGD)
    plan: Plan = field(default_factory=Plan)

    @property
    def learns(self) -> bool:
        """Whether training it can change anything: what is drawn anew cannot profit from the round before."""
        if self.train == "round" and (self.home == "fresh" or self.plan.epochs == 0):
            return False
        return self.rate > 0

    def draw(self, key: Key, num_features: int, outputs: int, round: int = -1, client: int = -1) -> fl.Tree:
        """Initial weights by address."""
        between = [self.hidden or num_features] * (self.layers - 1)
        return init_mlp(key.at("discriminator", round, client), [num_features, *between, outputs])


@dataclass(frozen=True)
class UniformAlignment(fl.Part):
    """UAD: weight * uniform_loss of the discriminator's answer, and the discriminator's own training."""

    problems = ("any",)
    peers: Peers
    weight: float
    discriminator: Discriminator
    num_features: int

    def state(self, model: fl.Model, world: fl.World) -> fl.Trees:
        """A seed for what clients draw themselves, and the discriminator if the server keeps it."""
        seed = world.key.number("discriminator")
        trees: fl.Trees = {"alignment": {"clients": torch.tensor(len(world.sizes)), "seed": torch.tensor(seed)}}
        if self.discriminator.home == "server":
            first = self.discriminator.draw(world.key, self.num_features, len(world.sizes))
            trees["discriminator"] = {name: t.to(model.device) for name, t in first.items()}
        return trees

    def send(self, state: fl.State) -> fl.Trees:
        return {name: state[name] for name in ("alignment", "discriminator") if name in state}

    def memory(self, job: fl.Job) -> fl.Trees:
        """A discriminator of the client's own."""
        if self.discriminator.home != "client":
            return {}
        return {"discriminator": self._draw(job, int(job.shared["alignment"]["clients"]), round=-1)}

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """The discriminator, its optimizer, and which output belongs to whom."""
        group, settings = job.shared.get("group"), self.discriminator
        if settings.home != "fresh":
            kept = job.shared if settings.home == "server" else job.memory
            tree = clone(kept["discriminator"])
        elif settings.classes == "all":
            tree = self._draw(job, int(job.shared["alignment"]["clients"]), int(job.info["round"]))
        elif group is not None:
            tree = self._draw(job, len(group["ids"]), int(job.info["round"]))
        else:
            return {}  # asked on its own: there is no group to be told apart from
        corner: fl.Corner = {"discriminator": tree, "optimizer": settings.optimizer.init(tree)}
        if group is not None:
            ids = group["ids"]
            corner["labels"] = ids if settings.classes == "all" else torch.arange(len(ids), device=ids.device)
            corner["own"] = ids == job.info["client"]
        if settings.train == "round" and settings.learns and "priors" in job.shared:
            corner |= {"x": job.data.x, "order": self._order(job)}
        return corner

    def loss(self, view: fl.View) -> fl.Term | None:
        """The discriminator is fixed: the gradient reaches the model through the features only."""
        corner = view.carry[self.name]
        if not corner:
            return None
        answers = mlp(corner["discriminator"], view.out.features)
        return self.weight * view.mean(uniform_loss(answers))

    def after(self, model: fl.Model, job: fl.Job, carry: fl.Carry, batch: fl.Batch) -> None:
        """Under `batch`, one step of the discriminator on the features of the model just updated."""
        if self.discriminator.train != "batch" or not self.discriminator.learns:
            return
        peers = self.peers.rows(model, job, carry, batch, "features")
        if peers is not None:
            own = self._own_features(model, carry, batch.x)
            self._learn(job, carry[self.name], peers, own, batch.weight)

    def discloses(self) -> Declared:
        settings = self.discriminator
        travels = settings.home == "server" and settings.learns
        return {"discriminator": Disclosure.UPDATE} if travels else {}

    def has_own(self, hook: str) -> bool:
        """Nothing follows a step under `round`, and what follows none can be compiled with it."""
        return super().has_own(hook) and (hook != "after" or self.discriminator.train == "batch")

    def close(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> None:
        """Under `round`, the discriminator's epochs on the finished model's features."""
        corner = carry[self.name]
        if "order" not in corner:
            return
        peers = carry[self.peers.name]["features"]
        own = in_chunks(partial(self._own_features, model, carry), corner["x"])
        for rows in self._batches(corner["order"]):
            self._learn(job, corner, peers[rows], own[rows], own.new_ones(len(rows)))

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        """The discriminator goes home."""
        corner, settings = carry[self.name], self.discriminator
        if settings.home == "fresh" or (settings.home == "server" and not settings.learns):
            return {}, {}
        home: fl.Trees = {"discriminator": corner["discriminator"]}
        return (home, {}) if settings.home == "server" else ({}, home)

    def _learn(self, job: fl.Job, corner: fl.Corner, peers: Tensor, own: Tensor, weight: Tensor) -> None:
        # One feature per member of the group: the peers' from their priors, the client's own from its model.
        features = torch.where(corner["own"][:, None], own[:, None], peers)
        tree: fl.Tree = corner["discriminator"]

        def loss(tree: fl.Tree) -> Tensor:
            return weighted_mean(naming_loss(mlp(tree, features), corner["labels"], corner["own"]), weight)

        with torch.enable_grad():
            named = gradient_of(loss, tree)
        rate = job.info["lr"] * self.discriminator.rate
        self.discriminator.optimizer.update(tree, named, corner["optimizer"], rate)

    def _order(self, job: fl.Job) -> Tensor:
        """[n, epochs] the samples in the order of each epoch."""
        rng = self._key(job).at("discriminator.order", int(job.info["round"]), int(job.info["client"]))
        orders = [rng.permutation(len(job.data.x)) for _ in range(self.discriminator.plan.epochs)]
        return torch.from_numpy(np.stack(orders, 1)).to(job.data.x.device)

    def _batches(self, order: Tensor) -> Iterator[Tensor]:
        """Those of the discriminator's plan; one that is filled up goes on with the epoch's first samples."""
        plan = self.discriminator.plan
        for epoch in order.unbind(1):
            rows = torch.cat([epoch, epoch])
            for number, length in enumerate(plan.lengths(len(epoch))):
                yield rows[number * plan.batch_size :][:length]

    def _key(self, job: fl.Job) -> Key:
        return Key(int(job.shared["alignment"]["seed"]))

    def _draw(self, job: fl.Job, outputs: int, round: int) -> fl.Tree:
        client = int(job.info["client"])
        drawn = self.discriminator.draw(self._key(job), self.num_features, outputs, round, client)
        return {name: t.to(job.info["lr"].device) for name, t in drawn.items()}

    def _own_features(self, model: fl.Model, carry: fl.Carry, x: Tensor) -> Tensor:
        # Of the model as it is now, in evaluation mode: it is fixed while the discriminator learns.
        return outputs(model.reference, carry["train"]["model"], carry["buffers"], x, self.peers.reads).features


@dataclass(frozen=True)
class MapAlignment(UniformAlignment):
    """UAD on the flattened feature maps, which the task's forward pass hands on in the place of the features."""

    def forward(self, model: fl.Model, job: fl.Job, carry: fl.Carry, params: fl.Trees, batch: fl.Batch) -> Out:
        return outputs(model.train, params["model"], carry["buffers"], batch.x, "maps")
