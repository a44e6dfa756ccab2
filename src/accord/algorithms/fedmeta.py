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
Defaults: share = 0.1 and meta_lr = 0.01 (FedUFO's), one epoch in batches of local.batch_size, plain SGD; server_lr =
0.1 is ours. share = 0 without uga is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated

import numpy as np
import torch

from accord.aggregate import Mean
from accord.algorithms.fedavg import averaging
from accord.core.algorithm import Method, Setup, put
from accord.core.model import Model
from accord.core.optim import SGD
from accord.core.plan import LastBatch
from accord.core.task import Corner, LocalTraining, Part
from accord.core.tensors import Trees, zeros_like
from accord.core.types import Batch, Carry, ClientData, Exchange, Job, Replies, State, World
from accord.errors import ConfigError
from accord.parts.bounds import whole, within
from accord.parts.giving import HandOver, KeptSamples
from accord.parts.losses import CrossEntropy
from accord.parts.turns import Turns, taking_turns
from accord.settings import POSITIVE, PROPER_FRACTION, AtLeast, Search


@dataclass(frozen=True)
class UnbiasedGradient(Part):
    """The mean gradient of the last epoch, in which the model's gate is closed, in place of the model."""

    server_lr: float

    def begin(self, model: Model, job: Job) -> Corner:
        """No gradients yet."""
        return {"sum": zeros_like(job.shared["model"]), "count": torch.zeros_like(job.info["lr"])}

    def grad(self, job: Job, carry: Carry, grads: Trees) -> Trees:
        """Gathered while the model stands still."""
        corner, still = carry[self.name], 1 - carry["optimizer"]["model"]["gate"]["rest"]
        for name, grad in grads["model"].items():
            corner["sum"][name].add_(grad * still)
        corner["count"].add_(still)
        return grads

    def finish(self, model: Model, job: Job, carry: Carry) -> tuple[Trees, Trees]:
        """w_t - server_lr g_k, whose mean is the server's step."""
        start, corner = job.shared["model"], carry[self.name]
        scale = self.server_lr / corner["count"].clamp(min=1)
        return {"model": {name: w - scale * corner["sum"][name] for name, w in start.items()}}, {}


@dataclass(frozen=True)
class MetaUpdated(Method):
    """Any method, then training on D_meta at the server."""

    meta: LocalTraining = field(kw_only=True)
    meta_lr: float = field(kw_only=True)
    num_classes: int = field(kw_only=True)

    def start(self, state: State, world: World, exchange: Exchange) -> State:
        """Gather D_meta."""
        if "contribute" not in self.tasks:
            return state
        replies = exchange("contribute", world.clients, {})
        pool = {leaf: torch.cat([tree[leaf] for tree in replies.each("meta")]) for leaf in ("x", "y")}
        if not len(pool["y"]):
            raise ConfigError(
                "algorithm fedmeta gathered no samples: every client holds too few for algorithm.share; raise it"
            )
        return put(state, meta=pool)

    def round(self, state: State, world: World, exchange: Exchange) -> tuple[State, Replies]:
        """The usual round, then the server's own epochs."""
        state, replies = super().round(state, world, exchange)
        return (self._meta_update(state, world) if "meta" in state else state), replies

    def _meta_update(self, state: State, world: World) -> State:
        x, y = state["meta"]["x"], state["meta"]["y"]
        batches = self.meta.plan.schedule(world.key.at("fedmeta", world.round), len(y))
        info = {"lr": torch.tensor(self.meta_lr, dtype=torch.get_default_dtype(), device=y.device)}
        data = ClientData(x, y, x[:0], y[:0], self.num_classes)
        job = Job({"model": state["model"], "buffers": state["buffers"]}, {}, {}, info, data)
        devices = [y.device] if y.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.no_grad():  # dropout draws from torch's generator
            torch.manual_seed(world.key.number("torch.fedmeta", world.round))
            carry = self.meta.begin(job)
            for rows in batches:
                index = torch.from_numpy(np.ascontiguousarray(rows)).to(y.device)
                weight = torch.ones_like(index, dtype=info["lr"].dtype)
                carry = self.meta.step(job, carry, Batch(x[index], y[index], weight, index, {}))
        return put(state, model=carry["train"]["model"], buffers=carry["buffers"])


def last_epoch(steps: int, epochs: int) -> Turns:
    """0, and 1 in the last epoch; all epochs have equally many steps."""
    return (np.arange(steps) >= steps - steps // epochs).astype(np.int64)


def fedmeta(
    setup: Setup,
    *,
    share: Annotated[float, PROPER_FRACTION, "share of every client's samples given to the server"] = 0.1,
    meta_lr: Annotated[float, POSITIVE, Search(1e-3, 0.1, log=True), "the server's rate on them"] = 0.01,
    meta_epochs: Annotated[int, AtLeast(1), "the server's passes over them in a round"] = 1,
    uga: Annotated[bool, "aggregate the last epoch's gradients instead of models"] = False,
    server_lr: Annotated[float, POSITIVE, Search(0.01, 1.0, log=True), "step on those gradients (uga)"] = 0.1,
) -> Method:
    """Average models, then train the average on samples given by the clients."""
    within(PROPER_FRACTION, share=share)
    within(POSITIVE, meta_lr=meta_lr, server_lr=server_lr)
    whole(AtLeast(1), meta_epochs=meta_epochs)
    if share == 0 and not uga:
        return averaging(setup)
    parts: tuple[Part, ...] = (KeptSamples() if share else CrossEntropy(),)
    local = setup.local(*parts, UnbiasedGradient(server_lr)) if uga else setup.local(*parts)
    if uga:
        if setup.plan.steps:
            raise ConfigError(
                "algorithm.uga gathers gradients in the last local epoch, but local.steps counts batches; "
                "set local.steps = 0 and use local.epochs, or algorithm.uga = false"
            )
        order = partial(last_epoch, epochs=max(setup.plan.epochs, 1))
        local = taking_turns(local, order, {("model", "rest"): 0})
    # The server has no use for a batch left out: a small D_meta might then never be seen.
    policy: LastBatch = "fill" if setup.model.couples_batch else "pad"
    plan = replace(setup.plan, epochs=meta_epochs, steps=0, last_batch=policy)
    return MetaUpdated(
        local,
        {"model": Mean(), "buffers": Mean()},
        setup.sampler,
        setup.schedule,
        extra_tasks={"contribute": HandOver(share)} if share else {},
        meta=LocalTraining(setup.model, (CrossEntropy(),), SGD(), plan),
        meta_lr=meta_lr,
        num_classes=setup.num_classes,
    )
