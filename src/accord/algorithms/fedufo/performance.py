"""Dynamic sampling (FedUFO): half of a round's clients are those the model serves worst.

A client's performance is the accuracy of the model it receives on its own training samples, before it trains
on them, or on a share of them that it never trains on: no test data is touched. `fresh` asks every client in
every round, which costs a model down and a number up for each; `stale` takes what the clients of the train task
report, most of it some rounds old.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import accord.authoring as fl
from accord.algorithms.fedufo.consensus import GlobalConsensus
from accord.core.algorithm import Sampler
from accord.core.disclosure import Declared, Disclosure
from accord.core.question import Question
from accord.parts.lookup import in_chunks

UNKNOWN = -1.0  # below every accuracy: a client never asked counts as one of the worst


@dataclass(frozen=True)
class WorstHalf:
    """floor(m / 2) clients of lowest performance, the rest at random among the others.

    m is as many as `of` would ask. Ties fall at random. Before `first_round` the choice is `of`'s own.
    """

    of: Sampler
    first_round: int

    def size(self, clients: int) -> int:
        return self.of.size(clients)

    def __call__(self, state: fl.State, world: fl.World) -> list[int]:
        """The round's cohort, sorted."""
        usual = self.of(state, world)
        if world.round < self.first_round:
            return usual
        rng = world.key.at("worst_half", world.round)
        ids = rng.permutation(np.sort(np.asarray(world.clients)))
        performance = state["performance"]["accuracy"].cpu().numpy()[ids]
        worst = ids[np.argsort(performance, kind="stable")][: len(usual) // 2]
        others = rng.choice(np.setdiff1d(ids, worst), size=len(usual) - len(worst), replace=False)
        return sorted(int(i) for i in (*worst, *others))


def held_out(count: int, share: float) -> list[int]:
    """floor(share * count) positions, evenly spaced: the same in every round and task, with nothing to remember."""
    held = min(int(share * count + 1e-9), count - 1)
    return [(2 * i + 1) * count // (2 * held) for i in range(held)]


def own_accuracy(model: fl.Model, job: fl.Job, share: float) -> Tensor:
    """Accuracy of the received model on the client's held-out samples; on all where none are held out."""
    params, buffers = job.shared["model"], job.shared["buffers"]
    x, y = _measured_on((job.data.x, job.data.y), share)
    guesses = in_chunks(lambda x: model.reference(params, buffers, x).logits.argmax(1), x)
    return _share_right(guesses, y, job)


def _measured_on(values: tuple[Tensor, Tensor], share: float) -> tuple[Tensor, Tensor]:
    """The rows of the held-out samples; all where none are held out."""
    first, second = values
    held = held_out(len(second), share)
    if not held:
        return values
    rows = torch.tensor(held, device=second.device)
    return first[rows], second[rows]


def _share_right(guesses: Tensor, y: Tensor, job: fl.Job) -> Tensor:
    return (guesses == y).to(job.info["lr"].dtype).mean()


@dataclass(frozen=True)
class Withheld(fl.Part):
    """No training on what performance is measured on: a kept sample takes its place, so an epoch keeps its length."""

    share: float

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """For every sample the one that is shown; those shown twice are evenly spaced too."""
        count, device = len(job.data.y), job.data.y.device
        held = held_out(count, self.share)
        kept = sorted(set(range(count)) - set(held))
        shown = torch.arange(count, device=device)
        twice = [kept[i * len(kept) // len(held)] for i in range(len(held))]
        shown[held] = torch.tensor(twice, dtype=shown.dtype, device=device)
        return {"shown": shown, "x": job.data.x, "y": job.data.y}

    def batch(self, job: fl.Job, corner: fl.Corner, batch: fl.Batch) -> fl.Batch:
        index = corner["shown"][batch.index]
        return batch._replace(x=corner["x"].index_select(0, index), y=corner["y"].index_select(0, index), index=index)


def measured(state: fl.State, replies: fl.Replies) -> fl.Trees:
    """The state's performance with the reported values put in."""
    known = state["performance"]["accuracy"].clone()
    known[list(replies.ids)] = replies.stacked("performance")["accuracy"]
    return {"performance": {"accuracy": known}}


@dataclass(frozen=True)
class Performance(fl.Part):
    """[K] performance of every client, on the server; with `stale` the clients that train report theirs."""

    needs_each = "chooses clients by each one's accuracy"
    needs = "a share of right answers to sample clients by"
    stale: bool
    share: float
    consensus: GlobalConsensus  # asks the received model about all samples, from its first round on

    def state(self, model: fl.Model, world: fl.World) -> fl.Trees:
        unknown = torch.full((len(world.sizes),), UNKNOWN, device=model.device)
        return {"performance": {"accuracy": unknown}}

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        asks = self.stale and not self.consensus.acts(job)
        return {"accuracy": own_accuracy(model, job, self.share)} if asks else {}

    def discloses(self) -> Declared:
        return {"performance": Disclosure.SCORE} if self.stale else {}

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        if not self.stale:
            return {}, {}
        accuracy = carry[self.name].get("accuracy")
        if accuracy is None:
            accuracy = _share_right(*_measured_on((carry[self.consensus.name]["guess"], job.data.y), self.share), job)
        return {"performance": {"accuracy": accuracy}}, {}

    def update(self, state: fl.State, replies: fl.Replies, world: fl.World) -> fl.State:
        """Remember what was reported."""
        return measured(state, replies) if self.stale else {}


@dataclass(frozen=True)
class MeasurePerformance(Question):
    """How well does the received model do on the client's own samples?"""

    share: float

    def discloses(self) -> Declared:
        return {"performance": Disclosure.SCORE}

    def answer(self, job: fl.Job) -> fl.Trees:
        return {"performance": {"accuracy": own_accuracy(self.model, job, self.share)}}
