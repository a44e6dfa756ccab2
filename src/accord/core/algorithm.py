"""A federated method: named client tasks and one plain function, `round`, that asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar, overload, runtime_checkable

from torch import Tensor, nn

from accord.core.judgement import Judgement
from accord.core.model import Model, Out
from accord.core.optim import Optimizer, Schedule
from accord.core.persample import PerSample
from accord.core.plan import Plan
from accord.core.task import LocalTraining, Part, Task, check_parts
from accord.core.tensors import Tree, Trees, ordered_trees
from accord.core.types import Exchange, Replies, Result, State, World
from accord.errors import ConfigError

Predictor = Callable[[Tensor], Out]
M = TypeVar("M", bound="Method")
L = TypeVar("L", bound=LocalTraining)


class Aggregator(Protocol):
    """Folds the clients' trees of one name into the server's.

    One for which a weighted sum of them is enough says `needs_each = ""`, another what it does (`accord.core.sums`).
    """

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

    def size(self, clients: int) -> int:
        """How many of so many clients a round asks."""
        ...

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

    @property
    def personal(self) -> bool:
        """Whether the method is about the clients' own models and judged by them."""
        ...

    @property
    def has_global_model(self) -> bool:
        """Whether the server has a whole model; if not, `predictor` gives None."""
        ...

    @property
    def judges_together(self) -> bool:
        """Whether a prediction depends on the other samples shown with it.

        Samples are then judged in one fixed random order, so that what lies side by side in a data set, often a
        class, is not judged side by side.
        """
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

    def judged(self, state: State) -> Trees:
        """What every client of the `evaluate` task receives."""
        ...

    def metrics(self, state: State) -> dict[str, float]:
        """Numbers of the server's own for the round's record."""
        ...

    def predictor(self, state: State) -> Predictor | None:
        """The global model as a function of inputs; None when the method has none."""
        ...

    def readings(self, state: State) -> Mapping[str, Predictor]:
        """Other ways to judge the same global model, by name; recorded beside the first."""
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
    personal: bool = False  # judged by the clients' own models; said where the method is registered
    has_global_model: bool = True
    judged_trees: ClassVar[tuple[str, ...]] = ("model", "buffers")  # what `predictor` reads of the state

    def __post_init__(self) -> None:
        kept = self.local.personal & {*self.model.head_names, *self.model.body_names}
        if kept and self.has_global_model:
            raise ConfigError(
                f"the method keeps {sorted(kept)[0]} with its clients, so its server has no whole model: "
                "make it with has_global_model=False"
            )

    @property
    def model(self) -> Model:
        """The model all clients share."""
        return self.local.model

    @property
    def tasks(self) -> Mapping[str, Task]:
        """`train`, what a method adds, and `evaluate`, by which clients judge the global model."""
        tasks: dict[str, Task] = {"train": self.local, **self.extra_tasks}
        if self.has_global_model:
            tasks["evaluate"] = Judgement(self.model, self.predictor, self.judges_together)
        return tasks

    @property
    def judges_together(self) -> bool:
        """Every sample is judged by itself."""
        return False

    @property
    def needs_each(self) -> str | None:
        """What a `round` or `start` of its own does that takes each answer by itself; empty: sums are enough."""
        return None

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

    def judged(self, state: State) -> Trees:
        """All that judging the global model takes."""
        return {name: state[name] for name in self.judged_trees if name in state}

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
        numbers: dict[str, float] = {}
        for tree, rule in self.aggregate.items():
            if isinstance(rule, Reporting):
                numbers |= rule.report(state, tree)
        return numbers

    def predictor(self, state: State) -> Predictor | None:
        """The averaged model, if there is one."""
        if not self.has_global_model:
            return None
        return lambda x: self.model.reference(state["model"], state["buffers"], x)

    def readings(self, state: State) -> Mapping[str, Predictor]:
        """There is one way to judge it."""
        return {}

    def local_predictor(self, state: State, result: Result) -> Predictor:
        """The client's trained model by itself."""
        client_state = self.with_own(state, result)
        return lambda x: self.model.reference(client_state["model"], client_state["buffers"], x)

    def with_own(self, state: State, result: Result) -> State:
        """The state with what a client trained, sent or kept, in the place of the server's."""
        trained = {**result.reply["model"], **result.reply["buffers"], **result.memory.get("personal", {})}
        trees = {name: tree for name, tree in result.reply.items() if name in state}
        for name in ("model", "buffers"):
            trees[name] = {leaf: trained.get(leaf, t) for leaf, t in state[name].items()}
        return {**state, **trees}

    def export(self, state: State) -> nn.Module | None:
        """The averaged model, if it is what the method is judged by (a method that predicts otherwise says so)."""
        plain = type(self).predictor is Method.predictor
        if not plain or self.predictor(state) is None:
            return None
        return self.model.module(state["model"], state["buffers"])


def no_public(name: str) -> Tensor:
    """Where a method is built by hand."""
    raise ConfigError(f"there is no public data {name!r} here: it is loaded for runs from a configuration only")


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
    private: PerSample | None = None  # of every training task: DP-SGD
    public: Callable[[str], Tensor] = no_public  # samples of a public data set by its name, prepared like the clients'

    @overload
    def local(self, *parts: Part, kind: type[L], **fields: Any) -> L: ...

    @overload
    def local(self, *parts: Part, **fields: Any) -> LocalTraining: ...

    def local(self, *parts: Part, kind: Any = LocalTraining, **fields: Any) -> Any:
        """A training task of these parts with the shared local settings; `fields` are its others.

        Where a part compares the samples of a batch there is no short last one, unless the user asked for it.
        """
        fill = self.free_last_batch and any(part.couples for part in parts)
        plan = replace(self.plan, last_batch="fill") if fill else self.plan
        shared = {
            "optimizer": self.optimizer,
            "plan": plan,
            "clip": self.clip,
            "keeps_optimizer": self.keeps_optimizer,
            "private": self.private,
        }
        return kind(self.model, check_parts(parts), **{**shared, **fields})

    @overload
    def method(
        self, local: LocalTraining, aggregate: Mapping[str, Aggregator], *, kind: type[M], **fields: Any
    ) -> M: ...

    @overload
    def method(self, local: LocalTraining, aggregate: Mapping[str, Aggregator], **fields: Any) -> Method: ...

    def method(
        self, local: LocalTraining, aggregate: Mapping[str, Aggregator], *, kind: Any = Method, **fields: Any
    ) -> Any:
        """A method with the shared sampler and schedule; `kind` is a class of its own, `fields` are its others."""
        return kind(local, aggregate, **{"sampler": self.sampler, "schedule": self.schedule, **fields})
