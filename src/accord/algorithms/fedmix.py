"""FedMix and NaiveMix: mixup with means of other clients' samples.

Yoon, Shin, Hwang, Yang. "FedMix: approximation of mixup under mean augmented federated learning". ICLR 2021,
arXiv 2107.00233.

    before round 0:  every client shuffles its samples, cuts them into groups of `means` and sends the mean input and
                     mean label (xbar, ybar) of every group; the server hands all of them to everyone
    client k:        each sample of a batch gets a random (xbar, ybar); l = lam
      NaiveMix:      CE(f((1 - l) x + l xbar), (1 - l) y + l ybar)
      FedMix:        (1 - l) CE(f(s), y) + l CE(f(s), ybar) + l (1 - l) mean_b <d CE_b(f(s), y_b) / ds, xbar_b>
                     with s = (1 - l) x: NaiveMix to first order in l xbar
    server:          as FedAvg

Sent: before round 0 the means, n_k / M inputs with soft labels: they reveal blurred samples and class shares of
groups of M, never of fewer (what is left over is not sent, so a client with fewer than M samples sends nothing). All
means travel down with every message here. Then as FedAvg.
Defaults: lam = 0.1 (0.05, 0.1 and 0.2 are searched), M = 10, drawn once (FedBR draws fresh ones for every step).
Choices: the derivative is that of the loss of each sample, as the formula says; the two public codes differentiate
the batch's mean and average once more, which makes the term B times smaller: as_published = true. Through batch norm
the derivative also reaches the rest of the batch. A client may get its own means. lam = 0 is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

import accord.authoring as fl
from accord.core.algorithm import put
from accord.core.disclosure import Declared, Disclosure
from accord.core.plan import Plan
from accord.core.types import Exchange, Result
from accord.errors import DataError
from accord.parts.samples import share_of, soft_labels

Lam = Annotated[
    float, fl.Range(low=0, below=1), fl.Search(choices=(0.05, 0.1, 0.2)), "share of the means; 0 mixes nothing"
]
Means = Annotated[int, fl.AtLeast(1), fl.Search(choices=(5, 10, 20)), "samples in each mean; 1 sends raw samples"]


@dataclass(frozen=True)
class GroupMeans:
    """A client program that trains nothing: every step of one shuffled pass is a group, and its mean is sent."""

    plan: Plan

    def first_memory(self, job: fl.Job) -> fl.Trees:
        return {}

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """The shuffled pass is all the chance there is."""
        return {}

    def begin(self, job: fl.Job) -> fl.Carry:
        """Room for the means of all full groups."""
        data = job.data
        if not data.x.is_floating_point():
            raise DataError(f"means of samples need inputs that are real numbers, these are {data.x.dtype}")
        groups = len(data.y) // self.plan.batch_size
        return {
            "x": data.x.new_zeros(groups, *data.x.shape[1:]),
            "y": data.x.new_zeros(groups, data.num_classes),
            "next": data.y.new_zeros(1),
        }

    def step(self, job: fl.Job, carry: fl.Carry, batch: fl.Batch) -> fl.Carry:
        labels = soft_labels(batch.y, job.data.num_classes, batch.x)
        for leaf, values in (("x", batch.x), ("y", labels)):
            carry[leaf].index_copy_(0, carry["next"], values.mean(0, keepdim=True))
        carry["next"].add_(1)
        return carry

    def discloses(self) -> Declared:
        """A mean of one sample is that sample."""
        return {"means": Disclosure.MEAN if self.plan.batch_size > 1 else Disclosure.SAMPLE}

    def finish(self, job: fl.Job, carry: fl.Carry) -> Result:
        return Result({"means": {"x": carry["x"], "y": carry["y"]}}, {}, {})


@dataclass(frozen=True)
class MeansPart(fl.Part):
    """A random mean for every sample of a batch."""

    needs = "soft labels to mix"
    mixes = True
    lam: float

    def send(self, state: fl.State) -> fl.Trees:
        return {"means": state["means"]}

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """Which mean each sample gets."""
        return {"fedmix.pick": rng.random((steps, batch))}

    @staticmethod
    def picked(job: fl.Job, batch: fl.Batch) -> tuple[Tensor, Tensor]:
        """xbar and ybar of the batch."""
        means = job.shared["means"]
        rows = share_of(batch.noise["fedmix.pick"][: len(batch.x)], len(means["y"]))
        return means["x"][rows], means["y"][rows]


@dataclass(frozen=True)
class MixedWithMeans(MeansPart):
    """NaiveMix: the batch itself is mixed."""

    def batch(self, job: fl.Job, corner: fl.Corner, batch: fl.Batch) -> fl.Batch:
        """(1 - l) (x, y) + l (xbar, ybar); no stored samples any more, which the empty index says."""
        x, y = self.picked(job, batch)
        labels = soft_labels(batch.y, job.data.num_classes, batch.x)
        keep = 1 - self.lam
        return batch._replace(x=keep * batch.x + self.lam * x, y=keep * labels + self.lam * y, index=batch.index[:0])


@dataclass(frozen=True)
class TaylorMix(MeansPart):
    """FedMix: mixing to first order."""

    stacks = False  # the loss holds a gradient of its own
    as_published: bool

    def batch(self, job: fl.Job, corner: fl.Corner, batch: fl.Batch) -> fl.Batch:
        """(1 - l) x, whose gradient will be asked for."""
        return batch._replace(x=((1 - self.lam) * batch.x).requires_grad_(), index=batch.index[:0])

    def loss(self, view: fl.View) -> fl.Term:
        batch, logits = view.batch, view.out.logits
        xbar, ybar = self.picked(view.job, batch)
        each = view.losses(logits)
        (slope,) = torch.autograd.grad((each * batch.weight).sum(), batch.x, create_graph=True)
        along = view.mean((slope * xbar).flatten(1).sum(1))
        if self.as_published:
            along = view.whole(along.value / batch.weight.sum())
        plain = (1 - self.lam) * view.mean(each)
        return plain + self.lam * view.mean(view.model.problem.loss(logits, ybar)) + self.lam * (1 - self.lam) * along


@dataclass(frozen=True)
class MeanAugmented(fl.Method):
    """Averaging, after the means were exchanged once."""

    @property
    def needs_each(self) -> str:
        return "passes each client's means on"

    def start(self, state: fl.State, world: fl.World, exchange: Exchange) -> fl.State:
        able = [client for client in world.clients if world.sizes[client] > 0]
        replies = exchange("means", able, {})
        means = {leaf: torch.cat([tree[leaf] for tree in replies.each("means")]) for leaf in ("x", "y")}
        if not len(means["y"]):
            size = self.tasks["means"].plan.batch_size
            raise fl.ConfigError(
                f"no client holds algorithm.means = {size} samples, so there is nothing to mix with; lower it"
            )
        return put(state, means=means)


def _mixing(setup: fl.Setup, lam: float, means: int, *parts: fl.Part) -> fl.Method:
    if lam == 0:
        return fl.averaging(setup)
    task = GroupMeans(Plan(epochs=1, batch_size=means, last_batch="drop"))
    rules = {"model": fl.Mean(), "buffers": fl.Mean()}
    return setup.method(setup.local(*parts), rules, kind=MeanAugmented, extra_tasks={"means": task})


@fl.method("data")
def fedmix(
    setup: fl.Setup,
    *,
    lam: Lam = 0.1,
    means: Means = 10,
    as_published: Annotated[bool, "divide the derivative's term by the batch size, as the public codes do"] = False,
) -> fl.Method:
    """Average models trained on mixup with means, to first order."""
    return _mixing(setup, lam, means, TaylorMix(lam, as_published))


@fl.method("data")
def naivemix(setup: fl.Setup, *, lam: Lam = 0.1, means: Means = 10) -> fl.Method:
    """Average models trained on samples mixed with means."""
    return _mixing(setup, lam, means, fl.SampleLoss(), MixedWithMeans(lam))
