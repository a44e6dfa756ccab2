"""A federated method: named client tasks and one plain function, `round`, that asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from accord.core.model import Model, Out
from accord.core.optim import Optimizer, Schedule
from accord.core.plan import Plan
from accord.core.task import LocalTraining, Part, Task, check_parts
from accord.core.tensors import Tree, Trees, ordered_trees
from accord.core.types import Exchange, Replies, Result, State, World

Predictor = Callable[[Tensor], Out]


class Aggregator(Protocol):
    """Folds the clients' trees of one name into the server's."""

    def state(self, tree: str, value: Tree) -> Trees:
        """Trees it needs to remember beside `tree` itself (momentum, second moments)."""
        ...

    def __call__(self, state: State, tree: str, replies: Replies) -> Trees:
        """The trees of the state that change."""
        ...


@runtime_checkable
class Reporting(Protocol):
    """An aggregator that keeps numbers worth reading after every round."""

    def report(self, state: State, tree: str) -> dict[str, float]:
        """Those numbers by name."""
        ...


class Sampler(Protocol):
    """Chooses the clients of a round."""

    def __call__(self, state: State, world: World) -> list[int]:
        """Ids, sorted."""
        ...


class Algorithm(Protocol):
    """What the engine holds. It never looks inside."""

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Client programs by name; a remote node is asked for them by that name."""
        ...

    @property
    def schedule(self) -> Schedule:
        """The clients' learning rate per round."""
        ...

    @property
    def pools_data(self) -> bool:
        """Whether the data of all clients is gathered into one before the run (the ceiling, not a federation)."""
        ...

    def init(self, world: World) -> State:
        """The server's state before round 0."""
        ...

    def start(self, state: State, world: World, exchange: Exchange) -> State:
        """Once, before round 0."""
        ...

    def round(self, state: State, world: World, exchange: Exchange) -> tuple[State, Replies]:
        """One round; the replies are those the metrics are read from."""
        ...

    def message(self, state: State) -> Trees:
        """What every client of the `train` task receives."""
        ...

    def metrics(self, state: State) -> dict[str, float]:
        """Numbers of the server's own for the round's record."""
        ...

    def predictor(self, state: State) -> Predictor | None:
        """The global model as a function of inputs; None when the method has none."""
        ...

    def local_predictor(self, state: State, result: Result) -> Predictor:
        """The model one client came to in the round that led to `state`."""
        ...

    def export(self, state: State) -> nn.Module | None:
        """The global model as an ordinary module, where one module computes what `predictor` does."""
        ...


def put(state: State, **trees: Tree) -> State:
    """The state with some trees replaced, names sorted."""
    return ordered_trees({**state, **trees})


@dataclass(frozen=True)
class Method:
    """The usual method: one exchange a round, a rule per tree, and what the parts add."""

    local: LocalTraining
    aggregate: Mapping[str, Aggregator]
    sampler: Sampler
    schedule: Schedule
    extra_tasks: Mapping[str, Task] = field(default_factory=dict)
    pools_data: bool = False  # train on the union of all clients' data instead

    @property
    def model(self) -> Model:
        """The model all clients share."""
        return self.local.model

    @property
    def tasks(self) -> Mapping[str, Task]:
        """`train`, and what a method adds."""
        return {"train": self.local, **self.extra_tasks}

    def init(self, world: World) -> State:
        """The initial model, the parts' and the aggregators' own trees."""
        params, buffers = self.model.init()
        state: State = {"model": params, "buffers": buffers}
        for part in self.local.parts:
            state.update(part.state(self.model, world))
        for tree, rule in self.aggregate.items():
            state.update(rule.state(tree, state[tree]))
        return ordered_trees(state)

    def start(self, state: State, world: World, exchange: Exchange) -> State:
        """Nothing to prepare."""
        return state

    def message(self, state: State) -> Trees:
        """The model and what the parts send."""
        message: Trees = {"model": state["model"], "buffers": state["buffers"]}
        for part in self.local.parts:
            message.update(part.send(state))
        return ordered_trees(message)

    def round(self, state: State, world: World, exchange: Exchange) -> tuple[State, Replies]:
        """Ask the sampled clients to train, fold their answers in."""
        replies = exchange("train", self.sampler(state, world), self.message(state))
        return self.fold(state, world, replies), replies

    def fold(self, state: State, world: World, replies: Replies) -> State:
        """The server's half: every tree's rule, then every part's update, each on the state before the round."""
        new: Trees = dict(state)
        for tree, rule in self.aggregate.items():
            new.update(rule(state, tree, replies))
        for part in self.local.parts:
            new.update(part.update(state, replies, world))
        return ordered_trees(new)

    def metrics(self, state: State) -> dict[str, float]:
        """What the aggregators report."""
        found: dict[str, float] = {}
        for tree, rule in self.aggregate.items():
            if isinstance(rule, Reporting):
                found |= rule.report(state, tree)
        return found

    def predictor(self, state: State) -> Predictor | None:
        """The averaged model, unless some of it never leaves the clients."""
        if self.local.personal & set(self.model.head_names):
            return None
        return lambda x: self.model.reference(state["model"], state["buffers"], x)

    def local_predictor(self, state: State, result: Result) -> Predictor:
        """The client's trained model by itself."""
        own = self.with_own(state, result)
        return lambda x: self.model.reference(own["model"], own["buffers"], x)

    def with_own(self, state: State, result: Result) -> State:
        """The state with what a client trained, sent or kept, in the place of the server's."""
        own = {**result.reply["model"], **result.reply["buffers"], **result.memory.get("personal", {})}
        trees = {name: tree for name, tree in result.reply.items() if name in state}
        for name in ("model", "buffers"):
            trees[name] = {leaf: own.get(leaf, t) for leaf, t in state[name].items()}
        return {**state, **trees}

    def export(self, state: State) -> nn.Module | None:
        """The averaged model, if it is what the method is judged by (a method that predicts otherwise says so)."""
        plain = type(self).predictor is Method.predictor
        if not plain or self.predictor(state) is None:
            return None
        return self.model.module(state["model"], state["buffers"])


@dataclass(frozen=True)
class Setup:
    """What every factory is given: the model and the local settings shared by all methods of a comparison."""

    model: Model
    optimizer: Optimizer
    plan: Plan
    schedule: Schedule
    sampler: Sampler
    num_clients: int
    num_classes: int
    rounds: int
    clip: float = 0.0
    free_last_batch: bool = True  # the user left the last-batch policy to us
    keeps_optimizer: bool = False  # clients keep its state over rounds

    def coupled(self) -> Setup:
        """For losses that compare the samples of a batch: no short last batch, unless the user asked for one."""
        return replace(self, plan=replace(self.plan, last_batch="fill")) if self.free_last_batch else self

    def local(self, *parts: Part, **changes: Any) -> LocalTraining:
        """A training task of these parts with the shared local settings."""
        task = LocalTraining(
            self.model, check_parts(parts), self.optimizer, self.plan, self.clip, keeps_optimizer=self.keeps_optimizer
        )
        return replace(task, **changes) if changes else task

    def method(self, local: LocalTraining, aggregate: Mapping[str, Aggregator]) -> Method:
        """A method with the shared sampler and schedule."""
        return Method(local, aggregate, self.sampler, self.schedule)
