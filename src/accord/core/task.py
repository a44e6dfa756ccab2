"""Client programs. A task is `begin`, then `step` per batch, then `finish`; a part is one idea inside a task.

Ownership: the job and the batch are only read. The carry belongs to the task that made it in `begin`; `step` may
overwrite its tensors. Nothing else survives: what a client must remember is returned as memory.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from accord.core.compiling import compiled
from accord.core.model import Model, Out
from accord.core.optim import SGD, Optimizer, clip_by_norm
from accord.core.plan import Plan
from accord.core.tensors import Tree, Trees, clone, ordered, ordered_trees
from accord.core.types import Batch, Carry, Job, Replies, Result, State, World
from accord.errors import ConfigError

Corner = dict[str, Any]


class Task(Protocol):
    """A pure client program."""

    @property
    def plan(self) -> Plan:
        """How many steps over which batches; no epochs and no steps means begin and finish only."""
        ...

    def first_memory(self, job: Job) -> Trees:
        """Memory of a client seen for the first time."""
        ...

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """Random arrays with a leading [S] axis; each step finds its row in `batch.noise`."""
        ...

    def begin(self, job: Job) -> Carry:
        """What the steps work on."""
        ...

    def step(self, job: Job, carry: Carry, batch: Batch) -> Carry:
        """One batch."""
        ...

    def finish(self, job: Job, carry: Carry) -> Result:
        """What travels, what stays, what is measured."""
        ...


class View(NamedTuple):
    """What a part sees during a step."""

    model: Model
    job: Job
    carry: Carry
    params: Trees  # trained trees as autograd leaves: params["model"], and those other parts train
    out: Out  # of the trained model on this batch
    batch: Batch


@dataclass(frozen=True)
class Part:
    """One idea, client and server half together. Override what is needed; the fields are its configuration."""

    compiles: ClassVar[bool] = True  # False: its loss uses a gradient of its own, which torch.compile cannot derive

    @property
    def name(self) -> str:
        """Its corner of the carry; also what a user sees in error messages."""
        return type(self).__name__

    # server -------------------------------------------------------------------------------------------------
    def state(self, model: Model, world: World) -> Trees:
        """Trees the server owns from round 0."""
        return {}

    def send(self, state: State) -> Trees:
        """What goes to the clients beside the model."""
        return {}

    def update(self, state: State, replies: Replies, world: World) -> State:
        """The server's state after aggregation; return only what changes."""
        return {}

    # client -------------------------------------------------------------------------------------------------
    def memory(self, job: Job) -> Trees:
        """Memory at a client's first visit."""
        return {}

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """Random arrays wanted per step, [S, ...]."""
        return {}

    def begin(self, model: Model, job: Job) -> Corner:
        """Its corner of the carry: frozen outputs computed once, a second model, ..."""
        return {}

    def trainable(self, job: Job) -> Trees:
        """Trees trained jointly with the model."""
        return {}

    def batch(self, job: Job, corner: Corner, batch: Batch) -> Batch:
        """The batch, changed (mixing)."""
        return batch

    def before(self, model: Model, job: Job, carry: Carry, batch: Batch) -> None:
        """Its own small optimisation before the model's step; writes only its corner."""

    def loss(self, view: View) -> Tensor | None:
        """A term of the loss."""
        return None

    def grad(self, job: Job, carry: Carry, grads: Trees) -> Trees:
        """The gradients, changed."""
        return grads

    def after(self, model: Model, job: Job, carry: Carry, batch: Batch) -> None:
        """After the model's step: moving averages, a second model; writes only its corner."""

    def finish(self, model: Model, job: Job, carry: Carry) -> tuple[Trees, Trees]:
        """Reply and memory."""
        return {}, {}

    def judged(self, model: Model, job: Job, carry: Carry) -> tuple[Tree, Tree] | None:
        """Parameters and buffers of the personal model, if this part keeps one."""
        return None

    def judged_before(self, model: Model, job: Job, carry: Carry) -> tuple[Tree, Tree] | None:
        """The same before the first step, for a part whose `judged` does more than look into the carry."""
        return self.judged(model, job, carry)


Forward = Callable[[Model, Job, Carry, Trees, Batch], Out]


def plain_forward(model: Model, job: Job, carry: Carry, params: Trees, batch: Batch) -> Out:
    """The model on the batch."""
    return model.train(params["model"], carry["buffers"], batch.x)


@dataclass(frozen=True)
class LocalTraining:
    """The usual task: train the received model on the sum of the parts' losses."""

    model: Model
    parts: tuple[Part, ...]
    optimizer: Optimizer = field(default_factory=SGD)
    plan: Plan = field(default_factory=Plan)
    clip: float = 0.0
    frozen: frozenset[str] = frozenset()  # parameters that are not trained
    personal: frozenset[str] = frozenset()  # parameters and buffers that stay with the client
    forward: Forward = plain_forward

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"the part {twice[0]} is listed twice; list each part once")

    def first_memory(self, job: Job) -> Trees:
        """Personal parameters start as the server's; parts add their own."""
        memory: Trees = {}
        if self.personal:
            params, buffers = self.model.init()  # for names the server does not send at all
            everything = {**params, **buffers, **job.shared["model"], **job.shared["buffers"]}
            memory["personal"] = {name: everything[name] for name in sorted(self.personal)}
        for part in self.parts:
            memory.update(part.memory(job))
        return memory

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """All parts' draws, in the order of the parts."""
        draws: dict[str, Any] = {}
        for part in self.parts:
            draws.update(part.noise(rng, steps, batch))
        return draws

    def begin(self, job: Job) -> Carry:
        """Copies of the received trees to train on, fresh optimizer state, the parts' corners."""
        own = job.memory.get("personal", {})
        names = {*self.model.head_names, *self.model.body_names}
        model = {**job.shared["model"], **{name: t for name, t in own.items() if name in names}}
        buffers = {**job.shared["buffers"], **{name: t for name, t in own.items() if name not in names}}
        train: Trees = {"model": self.model.owned(ordered(model))}
        for part in self.parts:
            train.update({name: clone(tree) for name, tree in part.trainable(job).items()})
        active = {
            tree: {name: t for name, t in leaves.items() if tree != "model" or name not in self.frozen}
            for tree, leaves in train.items()
        }
        zero = torch.zeros((), dtype=torch.float64, device=job.info["lr"].device)
        carry: Carry = {
            "train": train,
            "active": active,
            "buffers": clone(ordered(buffers)),
            "optimizer": {tree: self.optimizer.init(leaves) for tree, leaves in active.items()},
            "metrics": {"loss": zero, "seen": zero.clone()},
        }
        for part in self.parts:
            carry[part.name] = part.begin(self.model, job)
        if job.data.has_test:
            carry["metrics"]["personal_before"] = self._personal_correct(job, carry, before=True)
        return carry

    def step(self, job: Job, carry: Carry, batch: Batch) -> Carry:
        """One optimizer step; the hooks run in the order of the list."""
        for part in self.parts:
            batch = part.batch(job, carry[part.name], batch)
        for part in self.parts:
            part.before(self.model, job, carry, batch)
        active: Trees = carry["active"]
        leaves = {
            tree: {name: t.detach().requires_grad_() for name, t in tensors.items()} for tree, tensors in active.items()
        }
        params = {tree: {**carry["train"][tree], **leaves[tree]} for tree in active}
        with torch.enable_grad():
            compiles = self.model.compiled and all(part.compiles for part in self.parts)
            objective = compiled(_objective) if compiles else _objective
            loss, *sums = objective(self, job, carry, params, batch)
            flat = [leaf for tensors in leaves.values() for leaf in tensors.values()]
            one = _one(loss.dtype, loss.device) if compiles else None
            grads_flat = iter(torch.autograd.grad(loss, flat, one, allow_unused=True, materialize_grads=True))
        grads: Trees = {tree: {name: next(grads_flat) for name in tensors} for tree, tensors in leaves.items()}
        for part in self.parts:
            grads = part.grad(job, carry, grads)
        for tree, tensors in active.items():
            if self.clip and tensors:
                grads[tree] = clip_by_norm(grads[tree], self.clip)
            self.optimizer.update(tensors, grads[tree], carry["optimizer"][tree], job.info["lr"])
        for part in self.parts:
            part.after(self.model, job, carry, batch)
        torch._foreach_add_([carry["metrics"]["loss"], carry["metrics"]["seen"]], sums)
        return carry

    def finish(self, job: Job, carry: Carry) -> Result:
        """The trained model without its personal names, and what the parts add."""
        everything: Trees = {"model": carry["train"]["model"], "buffers": carry["buffers"]}
        reply: Trees = {
            tree: {name: t for name, t in tensors.items() if name not in self.personal}
            for tree, tensors in everything.items()
        }
        memory: Trees = {}
        if self.personal:
            memory["personal"] = {
                name: t for tensors in everything.values() for name, t in tensors.items() if name in self.personal
            }
        for part in self.parts:
            part_reply, part_memory = part.finish(self.model, job, carry)
            reply.update(part_reply)
            memory.update(part_memory)
        metrics = {**carry["metrics"], "steps": job.info["steps"].double()}
        if job.data.has_test:
            correct = self._personal_correct(job, carry, before=False)
            metrics["personal_correct"] = correct
            metrics["personal_examples"] = torch.full_like(correct, len(job.data.test_y))
        return Result(ordered_trees(reply), ordered_trees(memory), metrics)

    def _personal_correct(self, job: Job, carry: Carry, *, before: bool) -> Tensor:
        """How many of its own test samples the client's model gets right, before the first step or after the last."""
        found = [(p.judged_before if before else p.judged)(self.model, job, carry) for p in self.parts]
        judged = [one for one in found if one is not None]
        params, buffers = judged[-1] if judged else (carry["train"]["model"], carry["buffers"])
        logits = self.model.reference(params, buffers, job.data.test_x).logits
        return (logits.argmax(1) == job.data.test_y).sum().double()


def _objective(
    task: LocalTraining, job: Job, carry: Carry, params: Trees, batch: Batch
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of the parts' losses, and what to add to the metrics: all that `torch.compile` may fuse."""
    out = task.forward(task.model, job, carry, params, batch)
    view = View(task.model, job, carry, params, out, batch)
    losses = [part.loss(view) for part in task.parts]
    loss = functools.reduce(operator.add, [term for term in losses if term is not None])
    seen = batch.weight.sum(dtype=torch.float64)
    return loss, loss.detach() * seen, seen


@functools.cache
def _one(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The gradient of a loss with respect to itself; torch would fill a new tensor in every step.

    Only for compiled steps: given one, torch first imports symbolic algebra, 0.1 GiB in every process.
    """
    return torch.ones((), dtype=dtype, device=device)


def check_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """At least one part must give a loss."""
    if not any(type(part).loss is not Part.loss for part in parts):
        raise ConfigError("no part gives a loss: add CrossEntropy() (or 'cross_entropy') to the parts")
    return tuple(parts)
