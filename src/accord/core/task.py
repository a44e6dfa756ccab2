"""Client programs. A task is `begin`, then `step` per batch, then `finish`; a part is one idea inside a task.

Ownership: the job and the batch are only read. The carry belongs to the task that made it in `begin`; `step` may
overwrite its tensors. Nothing else survives: what a client must remember is returned as memory.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from accord.core.disclosure import Declared, Disclosure
from accord.core.model import Model, Out
from accord.core.optim import SGD, Optimizer, clip_by_norm, in_one
from accord.core.persample import PerSample
from accord.core.plan import Plan
from accord.core.tensors import Tree, Trees, add_to, clone, is_stacked, ordered, ordered_trees
from accord.core.types import Batch, Carry, Job, Replies, Result, State, World
from accord.core.view import Term, View
from accord.errors import ConfigError

Corner = dict[str, Any]
KEPT = "optimizer"  # the tree of a client's memory that holds a kept optimizer state


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


@dataclass(frozen=True)
class Part:
    """One idea, client and server half together. Override what is needed; the fields are its configuration."""

    stacks: ClassVar[bool] = True  # False: many clients' losses cannot be traced as one (executors/gpu/compiler.py)
    conflicts: ClassVar[frozenset[str]] = frozenset()  # what it replaces, in words: two parts cannot replace the same
    problems: ClassVar[tuple[str, ...]] = ("classification",)  # tasks it is defined for; "any": it reads no labels
    needs: ClassVar[str] = "labels that are one class per sample"  # what other tasks lack
    mixes: ClassVar[bool] = False  # it computes with inputs as real numbers: token ids have no mean
    needs_each: ClassVar[str | None] = None  # what its `update` does that no sum of the answers is enough for, or ""

    @property
    def name(self) -> str:
        """Its corner of the carry; also what a user sees in error messages."""
        return type(self).__name__

    @property
    def couples(self) -> bool:
        """Whether its loss compares the samples of a batch, which should then have no short last one."""
        return False

    def has_own(self, hook: str) -> bool:
        """Whether it does anything there."""
        return getattr(type(self), hook) is not getattr(Part, hook)

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

    def forward(self, model: Model, job: Job, carry: Carry, params: Trees, batch: Batch) -> Out:
        """The trained model on the batch; one part of a task may run it in its own way."""
        return model.train(params["model"], carry["buffers"], batch.x)

    def loss(self, view: View) -> Term | None:
        """A term of the loss: `view.mean` of a value per sample, `view.whole` of anything else."""
        return None

    def grad(self, job: Job, carry: Carry, grads: Trees) -> Trees:
        """The gradients, changed."""
        return grads

    def after(self, model: Model, job: Job, carry: Carry, batch: Batch) -> None:
        """After the model's step: moving averages, a second model; writes only its corner."""

    def close(self, model: Model, job: Job, carry: Carry) -> None:
        """After the last step: a small training of its own, such as a discriminator's. It looks at no value and at no
        data but the carry's, so that it can be recorded as steps are; it overwrites tensors of its corner."""

    def finish(self, model: Model, job: Job, carry: Carry) -> tuple[Trees, Trees]:
        """Reply and memory."""
        return {}, {}

    def discloses(self) -> Declared:
        """What kind of thing each tree is that it sends; one that is not named counts as samples."""
        return {}

    def judged(self, model: Model, job: Job, carry: Carry) -> tuple[Tree, Tree] | None:
        """Parameters and buffers of the personal model, if this part keeps one."""
        return None

    def judged_before(self, model: Model, job: Job, carry: Carry) -> tuple[Tree, Tree] | None:
        """The same before the first step, for a part whose `judged` does more than look into the carry."""
        return self.judged(model, job, carry)


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
    keeps_optimizer: bool = False  # its state stays with the client over rounds
    private: PerSample | None = None  # every sample's gradient is clipped by itself, and noise is added
    hands_over: bool = False  # it answers with the model it is judged by, and with nothing else

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ConfigError(f"the part {min(twice)} is listed twice; list each part once")
        running = [part.name for part in self.parts if type(part).forward is not Part.forward]
        if len(running) > 1:
            raise ConfigError(f"the parts {running[0]} and {running[1]} both run the model; leave one of them out")

    def first_memory(self, job: Job) -> Trees:
        """Personal parameters start as the server's, a kept optimizer as new; parts add their own."""
        memory: Trees = {}
        if self.personal:
            params, buffers = self.model.init()  # for names the server does not send at all
            everything = {**params, **buffers, **job.shared["model"], **job.shared["buffers"]}
            memory["personal"] = {name: everything[name] for name in self.personal}
        for part in self.parts:
            memory.update(part.memory(job))
        if self.keeps_optimizer:
            train = self._trained(job._replace(memory={**memory, **job.memory}))
            memory[KEPT] = in_one({tree: self.optimizer.init(own) for tree, own in self._active(train).items()})
        return ordered_trees(memory)  # as a client brings it back: executors see one form

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """All parts' draws, in the order of the parts."""
        draws: dict[str, Any] = {}
        for part in self.parts:
            draws.update(part.noise(rng, steps, batch))
        return draws

    def begin(self, job: Job) -> Carry:
        """Copies of the received trees to train on, the optimizer's state, the parts' corners."""
        personal, names = job.memory.get("personal", {}), {*self.model.head_names, *self.model.body_names}
        buffers = {**job.shared["buffers"], **{name: t for name, t in personal.items() if name not in names}}
        train = self._trained(job)
        active = self._active(train)
        optimizer = {tree: self.optimizer.init(leaves) for tree, leaves in active.items()}
        if self.keeps_optimizer and KEPT in job.memory:  # not yet, if another task was the client's first
            for name, tensor in in_one(optimizer).items():
                tensor.copy_(job.memory[KEPT][name])  # into tensors laid out as the parameters are
        zero = torch.zeros((), dtype=torch.float64, device=job.info["lr"].device)
        carry: Carry = {
            "train": train,
            "active": active,
            "buffers": clone(ordered(buffers)),
            "optimizer": optimizer,
            "metrics": {"loss": zero, "seen": zero.clone()},
        }
        for part in self.parts:
            carry[part.name] = part.begin(self.model, job)
        if job.data.has_test:
            carry["metrics"]["personal_before"] = self._personal_correct(job, carry, before=True)
        return carry

    def _trained(self, job: Job) -> Trees:
        """Copies of all that is trained: the model, the client's own parameters in it, and the parts' trees."""
        own, names = job.memory.get("personal", {}), {*self.model.head_names, *self.model.body_names}
        model = {**job.shared["model"], **{name: t for name, t in own.items() if name in names}}
        train: Trees = {"model": self.model.owned(ordered(model))}
        for part in self.parts:
            train.update({name: clone(tree) for name, tree in part.trainable(job).items()})
        return train

    def _active(self, train: Trees) -> Trees:
        """Without the frozen parameters."""
        return {
            tree: {name: t for name, t in leaves.items() if tree != "model" or name not in self.frozen}
            for tree, leaves in train.items()
        }

    def step(self, job: Job, carry: Carry, batch: Batch) -> Carry:
        """One optimizer step; the hooks run in the order of the list."""
        batch = self.prepare(job, carry, batch)
        leaves = trained(carry)
        if self.private is not None:
            grads, sums = self.private.gradients(self, job, carry, leaves, batch)
        else:
            with torch.enable_grad():
                loss, *sums = self.objective(job, carry, leaves, batch)
                grads = gradients(loss, leaves)
        self.move(job, carry, batch, grads, sums)
        return carry

    def prepare(self, job: Job, carry: Carry, batch: Batch) -> Batch:
        """What comes before the gradient."""
        for part in self.parts:
            batch = part.batch(job, carry[part.name], batch)
        for part in self.parts:
            part.before(self.model, job, carry, batch)
        return batch

    def objective(self, job: Job, carry: Carry, leaves: Trees, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of the parts' losses, and what to add to the metrics."""
        params = {tree: {**carry["train"][tree], **values} for tree, values in leaves.items()}
        running = next((part for part in self.parts if type(part).forward is not Part.forward), self.parts[0])
        out = running.forward(self.model, job, carry, params, batch)
        view = View(self.model, job, carry, params, out, batch)
        losses = [_value(part, part.loss(view)) for part in self.parts]
        loss = functools.reduce(operator.add, [value for value in losses if value is not None])
        seen = batch.weight.sum(dtype=torch.float64)
        return loss, loss.detach() * seen, seen

    def move(self, job: Job, carry: Carry, batch: Batch, grads: Trees, sums: Sequence[Tensor]) -> None:
        """What comes after the gradient."""
        for part in self.parts:
            grads = part.grad(job, carry, grads)
        for tree, tensors in carry["active"].items():
            if self.clip and tensors:
                grads[tree] = clip_by_norm(grads[tree], self.clip)
            self.optimizer.update(tensors, grads[tree], carry["optimizer"][tree], job.info["lr"])
        for part in self.parts:
            part.after(self.model, job, carry, batch)
        add_to([carry["metrics"]["loss"], carry["metrics"]["seen"]], sums)

    @property
    def moves_in_stack(self) -> bool:
        """Whether `move` is no more than a step of an optimizer that stacks: it is compiled with the gradient."""
        return self.optimizer.stacks and not self.clip and not self.has_own("move", "grad", "after")

    def has_own(self, *hooks: str) -> bool:
        """Whether the task or one of its parts has more to do there than usual."""
        usual, of_parts = ([hook for hook in hooks if hasattr(base, hook)] for base in (LocalTraining, Part))
        own = any(getattr(type(self), hook) is not getattr(LocalTraining, hook) for hook in usual)
        return own or any(part.has_own(hook) for part in self.parts for hook in of_parts)

    @property
    def closes_apart(self) -> bool:
        """Whether there is something to `close`, which many clients can do together before any of them answers."""
        return type(self).finish is LocalTraining.finish and self.has_own("close")

    def close(self, job: Job, carry: Carry) -> None:
        """What the parts do after the last step."""
        for part in self.parts:
            part.close(self.model, job, carry)

    def finish(self, job: Job, carry: Carry) -> Result:
        """The answer, once the parts have closed."""
        self.close(job, carry)
        return self.answer(job, carry)

    def answer(self, job: Job, carry: Carry) -> Result:
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
        if self.keeps_optimizer:
            memory[KEPT] = in_one(carry["optimizer"])
        metrics = {**carry["metrics"], "steps": job.info["steps"].double()}
        if job.data.has_test:
            correct = self._personal_correct(job, carry, before=False)
            metrics["personal_correct"] = correct
            metrics["personal_examples"] = torch.full_like(correct, len(job.data.test_y))
        if self.hands_over:
            params, buffers = self._judged(job, carry, before=False)
            return Result(ordered_trees({"model": params, "buffers": buffers}), {}, metrics)
        return Result(ordered_trees(reply), ordered_trees(memory), metrics)

    def discloses(self) -> Declared:
        """What is trained, running statistics of features, and what the parts say of theirs."""
        trees = zip(("model", "buffers"), (Disclosure.UPDATE, Disclosure.STATISTIC), self.model.init(), strict=True)
        stays = frozenset[str]() if self.hands_over else self.personal
        sent = {tree: kind for tree, kind, own in trees if not stays >= own.keys()}
        for part in () if self.hands_over else self.parts:
            sent.update(part.discloses())
        return sent

    def _personal_correct(self, job: Job, carry: Carry, *, before: bool) -> Tensor:
        """The sum of the scores (right or not) of the client's model on its own test samples, before the first step
        or after the last."""
        params, buffers = self._judged(job, carry, before=before)
        logits = self.model.reference(params, buffers, job.data.test_x).logits
        return self.model.problem.score(logits, job.data.test_y).sum()

    def _judged(self, job: Job, carry: Carry, *, before: bool) -> tuple[Tree, Tree]:
        """The client's model: the one a part keeps, else the one it trains."""
        verdicts = [(p.judged_before if before else p.judged)(self.model, job, carry) for p in self.parts]
        judged = [one for one in verdicts if one is not None]
        return judged[-1] if judged else (carry["train"]["model"], carry["buffers"])


def stream(name: str, task: Task) -> str:
    """The name a task draws under: one that hands its model over trains as `train` does, to the bit."""
    return "train" if getattr(task, "hands_over", False) else name


def _value(part: Part, term: Term | None) -> Tensor | None:
    if term is None:
        return None
    if not isinstance(term, Term):
        raise TypeError(
            f"the part {part.name} gave a bare {type(term).__name__} as its loss: give view.mean(values) of one value "
            "per sample, which leaves padding out, or view.whole(value) of what is no mean over the batch"
        )
    return term.value


def trained(carry: Carry) -> Trees:
    """What is trained, as autograd leaves."""
    active: Trees = carry["active"]
    return {tree: {name: t.detach().requires_grad_() for name, t in named.items()} for tree, named in active.items()}


def gradients(loss: Tensor, leaves: Trees) -> Trees:
    """The gradient for every leaf."""
    flat = [leaf for named in leaves.values() for leaf in named.values()]
    grads = iter(torch.autograd.grad(loss, flat, allow_unused=True, materialize_grads=True))
    return {tree: {name: next(grads) for name in named} for tree, named in leaves.items()}


def gradient_of(loss: Callable[[Tree], Tensor], tree: Tree) -> Tree:
    """The gradient of a part's own loss, for a step of its own inside the objective."""
    if is_stacked(next(iter(tree.values()))):
        gradient: Tree = torch.func.grad(loss)(tree)  # all that works under torch.vmap; elsewhere it is the slower one
        return gradient
    leaves = {name: t.detach().requires_grad_() for name, t in tree.items()}
    return dict(zip(leaves, torch.autograd.grad(loss(leaves), list(leaves.values())), strict=True))


def check_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """At least one part must give a loss."""
    if not any(type(part).loss is not Part.loss for part in parts):
        raise ConfigError("no part gives a loss: add SampleLoss() to the parts")
    return tuple(parts)
