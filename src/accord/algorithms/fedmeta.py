"""FedMeta: after every average the server trains a little on samples the clients gave it.

Yao, Huang, Zhang, Li, Sun. "Federated learning with unbiased gradient aggregation and controllable meta updating".
arXiv 1910.08234, 2019.

    before round 0:  every client hands a random `share` of its samples to the server (D_meta, pooled) and trains on
                     the others from then on
    client k:        as FedAvg -> w_k
    server:          w~ = sum_k a_k w_k;   w_{t+1} <- meta_epochs of SGD from w~ on CE over D_meta, rate meta_lr

With uga = true the clients' models are not averaged ("unbiased gradient aggregation"): local.epochs - 1 epochs of
training -> w_k', then a last epoch in which nothing moves,
                     g_k = mean over its batches of grad CE(w_k');   w~ = w_t - server_lr sum_k a_k g_k
The paper differentiates through the unrolled epochs; here it is the first-order variant (d w_k' / d w_t taken as 1),
which is exact for local.epochs = 1 (then g_k is the gradient at w_t) and needs no memory for the trace.

Sent: before round 0 raw samples and labels, min(n_k - 1, round(share n_k)) of each client: this method is only for
clients who agree to that. Then as FedAvg; with uga, w_t - server_lr g_k up in place of w_k. Kept by the client: which
samples it gave; by the server: D_meta. A given sample is replaced by a kept one of weight 0 in every batch, so it
touches neither gradient nor statistics; n_k still counts it. Clients that are missing before round 0 give nothing.
Defaults: share = 0.1 and meta_lr = 0.01 (FedUFO's), one epoch in batches of local.batch_size, plain SGD (FedUFO has
meta_momentum = 0.9, meta_decay = 0.0002; a velocity lasts one round); server_lr = 0.1 is ours. share = 0 without uga is
FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

import accord.authoring as fl
from accord.core.algorithm import put
from accord.core.disclosure import Declared, Disclosure
from accord.core.optim import SGD
from accord.core.plan import LastBatch, Plan
from accord.core.tensors import zeros_like
from accord.core.types import ClientData, Exchange, Result
from accord.parts.phases import Turns, taking_turns


@dataclass(frozen=True)
class HandOver:
    """A client program that trains nothing: the first samples of one shuffled pass go to the server."""

    share: float
    plan: Plan = Plan(epochs=1, batch_size=0)  # noqa: RUF009 - frozen, so it can be shared

    def first_memory(self, job: fl.Job) -> fl.Trees:
        """Nothing was given yet."""
        return {}

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """The shuffled pass is all the chance there is."""
        return {}

    def begin(self, job: fl.Job) -> fl.Carry:
        return {"given": _nothing(job)}

    def step(self, job: fl.Job, carry: fl.Carry, batch: fl.Batch) -> fl.Carry:
        """The only step: all samples, in random order."""
        total = len(batch.index)
        carry["given"].index_fill_(0, batch.index[: min(total - 1, round(self.share * total))], True)
        return carry

    def discloses(self) -> Declared:
        return {"meta": Disclosure.SAMPLE}

    def finish(self, job: fl.Job, carry: fl.Carry) -> Result:
        """The samples travel, which ones they were stays."""
        given: Tensor = carry["given"]
        return Result({"meta": {"x": job.data.x[given], "y": job.data.y[given]}}, {"meta": {"given": given}}, {})


def _nothing(job: fl.Job) -> Tensor:
    """[n] which samples were given: none."""
    return torch.zeros(len(job.data.y), dtype=torch.bool, device=job.data.y.device)


@dataclass(frozen=True)
class KeptSamples(fl.Part):
    """The problem's loss on the samples that were not given away."""

    problems = ("any",)

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """For every sample the one to show in its place, and whether it counts."""
        # Who was not asked, or not there when the others gave, has given nothing.
        given = job.memory["meta"]["given"] if "meta" in job.memory else _nothing(job)
        kept = (~given).nonzero().flatten()
        shown = torch.arange(len(given), device=given.device)
        shown[given] = kept[torch.arange(int(given.sum()), device=given.device) % len(kept)]
        return {"shown": shown, "counts": (~given).to(job.info["lr"].dtype), "x": job.data.x, "y": job.data.y}

    def batch(self, job: fl.Job, corner: fl.Corner, batch: fl.Batch) -> fl.Batch:
        """Given samples make room for kept ones of weight 0."""
        index = corner["shown"][batch.index]
        weight = batch.weight * corner["counts"][batch.index]
        x, y = corner["x"].index_select(0, index), corner["y"].index_select(0, index)
        return batch._replace(x=x, y=y, weight=weight, index=index)

    def loss(self, view: fl.View) -> fl.Term:
        """Mean over the kept samples; 0 for a batch that was given away whole."""
        losses, weight = view.losses(view.out.logits), view.batch.weight
        return view.whole((losses * weight).sum() / weight.sum().clamp(min=1))


@dataclass(frozen=True)
class UnbiasedGradient(fl.Part):
    """The mean gradient of the last epoch, in which the model's gate is closed, in place of the model."""

    problems = ("any",)
    server_lr: float

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        return {"sum": zeros_like(job.shared["model"]), "count": torch.zeros_like(job.info["lr"])}

    def grad(self, job: fl.Job, carry: fl.Carry, grads: fl.Trees) -> fl.Trees:
        """Gathered while the model stands still."""
        corner, still = carry[self.name], 1 - carry["optimizer"]["model"]["gate"]["rest"]
        for name, grad in grads["model"].items():
            corner["sum"][name].add_(grad * still)
        corner["count"].add_(still)
        return grads

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        """w_t - server_lr g_k, whose mean is the server's step."""
        start, corner = job.shared["model"], carry[self.name]
        scale = self.server_lr / corner["count"].clamp(min=1)
        return {"model": {name: w - scale * corner["sum"][name] for name, w in start.items()}}, {}


@dataclass(frozen=True)
class MetaUpdated(fl.Method):
    """Any method, then training on D_meta at the server."""

    meta: fl.LocalTraining = field(kw_only=True)
    meta_lr: float = field(kw_only=True)
    num_classes: int = field(kw_only=True)

    @property
    def needs_each(self) -> str:
        return "trains on the samples each client gave" if "contribute" in self.tasks else ""

    def start(self, state: fl.State, world: fl.World, exchange: Exchange) -> fl.State:
        if "contribute" not in self.tasks:
            return state
        replies = exchange("contribute", world.clients, {})
        pool = {leaf: torch.cat([tree[leaf] for tree in replies.each("meta")]) for leaf in ("x", "y")}
        if not len(pool["y"]):
            raise fl.ConfigError(
                "algorithm fedmeta gathered no samples: every client holds too few for algorithm.share; raise it"
            )
        return put(state, meta=pool)

    def round(self, state: fl.State, world: fl.World, exchange: Exchange) -> tuple[fl.State, fl.Replies]:
        """The usual round, then the server's own epochs."""
        state, replies = super().round(state, world, exchange)
        return (self._meta_update(state, world) if "meta" in state else state), replies

    def _meta_update(self, state: fl.State, world: fl.World) -> fl.State:
        x, y = state["meta"]["x"], state["meta"]["y"]
        batches = self.meta.plan.schedule(world.key.at("fedmeta", world.round), len(y))
        info = {"lr": torch.tensor(self.meta_lr, dtype=torch.get_default_dtype(), device=y.device)}
        data = ClientData(x, y, x[:0], y[:0], self.num_classes)
        job = fl.Job({"model": state["model"], "buffers": state["buffers"]}, {}, {}, info, data)
        devices = [y.device] if y.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.no_grad():  # dropout draws from torch's generator
            torch.manual_seed(world.key.number("torch.fedmeta", world.round))
            carry = self.meta.begin(job)
            for rows in batches:
                index = torch.from_numpy(np.ascontiguousarray(rows)).to(y.device)
                weight = torch.ones_like(index, dtype=info["lr"].dtype)
                carry = self.meta.step(job, carry, fl.Batch(x[index], y[index], weight, index, {}))
        return put(state, model=carry["train"]["model"], buffers=carry["buffers"])


def last_epoch(steps: int, epochs: int) -> Turns:
    """0, and 1 in the last epoch; all epochs have equally many steps."""
    return (np.arange(steps) >= steps - steps // epochs).astype(np.int64)


@fl.method("data")
def fedmeta(
    setup: fl.Setup,
    *,
    share: Annotated[float, fl.Range(low=0, below=1), "share of every client's samples given to the server"] = 0.1,
    meta_lr: Annotated[float, fl.Range(above=0), fl.Search(1e-3, 0.1, log=True), "the server's rate on them"] = 0.01,
    meta_epochs: Annotated[int, fl.AtLeast(1), "the server's passes over them in a round"] = 1,
    meta_momentum: Annotated[float, fl.Range(low=0, below=1), "momentum of the server's SGD"] = 0.0,
    meta_decay: Annotated[float, fl.AtLeast(0), "weight decay of the server's SGD"] = 0.0,
    uga: Annotated[bool, "aggregate the last epoch's gradients instead of models"] = False,
    server_lr: Annotated[
        float, fl.Range(above=0), fl.Search(0.01, 1.0, log=True), "step on those gradients (uga)"
    ] = 0.1,
) -> fl.Method:
    """Average models, then train the average on samples given by the clients."""
    if share == 0 and not uga:
        return fl.averaging(setup)
    parts: tuple[fl.Part, ...] = (KeptSamples() if share else fl.SampleLoss(),)
    local = setup.local(*parts, UnbiasedGradient(server_lr)) if uga else setup.local(*parts)
    if uga:
        if setup.plan.steps:
            raise fl.ConfigError(
                "algorithm.uga gathers gradients in the last local epoch, but local.steps counts batches; "
                "set local.steps = 0 and use local.epochs, or algorithm.uga = false"
            )
        order = partial(last_epoch, epochs=max(setup.plan.epochs, 1))
        local = taking_turns(local, order, {("model", "rest"): 0})
    # The server has no use for a batch left out: a small D_meta might then never be seen.
    policy: LastBatch = "fill" if setup.model.couples_batch else "pad"
    plan = replace(setup.plan, epochs=meta_epochs, steps=0, last_batch=policy)
    return setup.method(
        local,
        {"model": fl.Mean(), "buffers": fl.Mean()},
        kind=MetaUpdated,
        extra_tasks={"contribute": HandOver(share)} if share else {},
        meta=fl.LocalTraining(setup.model, (fl.SampleLoss(),), SGD(meta_momentum, meta_decay), plan),
        meta_lr=meta_lr,
        num_classes=setup.num_classes,
    )
