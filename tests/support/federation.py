"""A tiny federation for tests: four unequal clients, an 8-input network, any registered method."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from accord.client import Executor
from accord.config import RunConfig
from accord.config.tree import PaceConfig
from accord.core.algorithm import Algorithm, Setup
from accord.core.methods import ALGORITHMS
from accord.core.model import Model
from accord.core.optim import SGD, Optimizer, Schedule
from accord.core.persample import PerSample
from accord.core.plan import Plan
from accord.core.tensors import Trees
from accord.core.types import Replies, State, World
from accord.data.federated import Environment, FederatedData, Groups, Pool, unchanged
from accord.engine.arrivals import StreamingExchange
from accord.engine.federation import Federation
from accord.engine.store import ClientStore
from accord.executors.kernels import layers_for
from accord.executors.sequential import Sequential
from accord.models import MODELS
from accord.pace.clock import without_clock
from accord.sampling import Everyone

CONFIG = RunConfig()
SIZES = (6, 9, 12, 15)
CLASSES = 3
SHAPE = (1, 8, 8)


def tiny_data(
    sizes: Sequence[int] = SIZES,
    classes: int = CLASSES,
    shape: tuple[int, ...] = SHAPE,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> FederatedData:
    """Random inputs with a class-dependent shift; every client has all of its own samples as its test data too."""
    rng = np.random.default_rng(seed)
    total = sum(sizes)
    y = rng.integers(0, classes, total)
    x = rng.normal(size=(total, *shape)) + y.reshape(-1, *([1] * len(shape)))
    pool = Pool(torch.tensor(x, dtype=dtype), torch.tensor(y))
    groups = Groups.of(np.split(np.arange(total), np.cumsum(sizes)[:-1]))
    return FederatedData("tiny", pool, pool, classes, groups, Groups.of([[]] * len(sizes)), groups)


def apart_data(dtype: torch.dtype = torch.float64) -> FederatedData:
    """Three clients and a newcomer whose train, validation and test samples are all others, and unlike each other.

    The labels of the test pool and of the validation samples follow the inputs less closely than those of the train
    samples, and sizes differ, so that a number taken from the wrong samples, or weighted by wrong sizes, is another.
    """
    rng = np.random.default_rng(12)
    centres = rng.normal(size=(CLASSES, 4))

    def drawn(count: int, noise: float) -> tuple[Any, Any]:
        y = rng.integers(0, CLASSES, count)
        return centres[y] + noise * rng.normal(size=(count, 4)), y

    (train_x, train_y), (held_x, held_y), (test_x, test_y) = drawn(42, 0.4), drawn(15, 1.5), drawn(34, 1.0)
    train_pool = Pool(
        torch.tensor(np.concatenate([train_x, held_x]), dtype=dtype), torch.tensor(np.concatenate([train_y, held_y]))
    )
    cut = [np.cumsum(sizes)[:-1] for sizes in ((6, 9, 15, 12), (2, 9, 4), (5, 8, 14, 7))]
    train = Groups.of(np.split(np.arange(42), cut[0]))
    validation = Groups.of([*np.split(np.arange(42, 57), cut[1]), []])
    test = Groups.of(np.split(rng.permutation(34), cut[2]))
    mirrored = Environment("mirrored", torch.neg)
    return FederatedData(
        "apart",
        train_pool,
        Pool(torch.tensor(test_x, dtype=dtype), torch.tensor(test_y)),
        CLASSES,
        train,
        validation,
        test,
        environments=(Environment("test", unchanged), mirrored),
        unseen=frozenset({3}),
    )


def tiny_model(
    name: str = "mlp",
    shape: tuple[int, ...] = SHAPE,
    classes: int = CLASSES,
    seed: int = 0,
    device: str = "cpu",
    form: Mapping[str, bool] | None = None,
    **settings: Any,
) -> Model:
    """A network drawn from a fixed seed."""
    if name == "mlp":
        settings = {"hidden": (5,), **settings}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = MODELS[name](shape, classes, **settings)
    return suited(network, device, form)


def suited(network: nn.Module, device: str = "cpu", form: Mapping[str, bool] | None = None) -> Model:
    """The model a run would make of the network: with the layers that suit its place and form."""
    form = form or {}
    chosen = layers_for(device, **{name: form[name] for name in ("channels_last", "compiled") if name in form})
    return Model(network, device, **form, layers=chosen)


class Given:
    """A fixed cohort per round; where all data is pooled, the one client there is."""

    def __init__(self, *cohorts: Sequence[int]) -> None:
        self.cohorts = cohorts

    def size(self, clients: int) -> int:
        return max(len(cohort) for cohort in self.cohorts)

    def __call__(self, state: State, world: World) -> list[int]:
        everyone = [int(k) for k in world.clients]
        return everyone if len(everyone) == 1 else sorted(self.cohorts[world.round % len(self.cohorts)])


def tiny_setup(
    data: FederatedData,
    model: Model,
    *,
    optimizer: Optimizer | None = None,
    plan: Plan | None = None,
    lr: float = 0.1,
    sampler: Any = None,
    rounds: int = 3,
    keeps_optimizer: bool = False,
    private: PerSample | None = None,
) -> Setup:
    """SGD, two epochs of batches of four, everyone takes part."""
    return Setup(
        model,
        optimizer or SGD(),
        plan or Plan(epochs=2, batch_size=4),
        Schedule(lr),
        sampler or Everyone(),
        len(data),
        data.num_classes,
        rounds,
        keeps_optimizer=keeps_optimizer,
        private=private,
    )


class TinyRun:
    """Rounds of one method on the tiny federation, state and client memory open to inspection."""

    def __init__(
        self,
        algorithm: str | Algorithm,
        settings: dict[str, Any] | None = None,
        *,
        data: FederatedData | None = None,
        model: Model | None = None,
        executor: Any = Sequential,
        seed: int = 1,
        with_test: bool = False,
        folder: Path | None = None,
        tolerate: float = 0.0,
        pace: PaceConfig | None = None,
        **setup: Any,
    ) -> None:
        self.data = data or tiny_data(dtype=torch.get_default_dtype())
        self.model = model or tiny_model()
        self.setup = tiny_setup(self.data, self.model, **setup)
        self.algorithm: Algorithm = (
            ALGORITHMS[algorithm](self.setup, **(settings or {})) if isinstance(algorithm, str) else algorithm
        )
        clients = replace(CONFIG.clients, tolerate=tolerate)
        config = replace(CONFIG, seed=seed, clients=clients, pace=pace or CONFIG.pace)
        self.federation = Federation(self.algorithm, self.data, self.model, config)
        self.key = self.federation.key
        self.executor: Executor = executor(self.federation.site(with_test=with_test), self.algorithm.tasks)
        where = folder or Path(tempfile.mkdtemp(prefix="accord-test-"))
        if folder is None:
            weakref.finalize(self, shutil.rmtree, where, ignore_errors=True)
        self.store = ClientStore(where, self.data.sizes, 1 << 30)
        self.round = 0
        self.replies: Replies | None = None
        self.clock = self.federation.clock()
        self._state = self.federation.first_state(self.exchange())

    @property
    def state(self) -> State:
        """What a checkpoint would hold: the method's state, and who is at work."""
        return {**self._state, **self.clock.trees()}

    @state.setter
    def state(self, whole: State) -> None:
        self._state, self.clock = without_clock(whole), self.federation.clock(whole)

    def world(self) -> World:
        return self.federation.world(self.round, self.clock)

    def exchange(self) -> StreamingExchange:
        return self.federation.exchange(self.executor, self.store, self.round, clock=self.clock)

    def rounds(self, count: int = 1) -> TinyRun:
        for _ in range(count):
            self._state, self.replies = self.algorithm.round(self._state, self.world(), self.exchange())
            self.round += 1
        return self

    def batches(self, client: int, task: str = "train", round: int | None = None) -> list[np.ndarray]:
        """The positions (in the client's own data) of every step's samples, as the run draws them."""
        at = self.round if round is None else round
        draws = self.federation.site().draws(client, task, at)
        return self.algorithm.tasks[task].plan.schedule(draws.order(), int(self.data.sizes[client]))

    def close(self) -> None:
        self.executor.close()


def equal_trees(a: Any, b: Any) -> bool:
    """Bitwise equality of two Trees."""
    return a.keys() == b.keys() and all(
        a[t].keys() == b[t].keys() and all(torch.equal(a[t][n], b[t][n]) for n in a[t]) for t in a
    )


def memories(run: TinyRun) -> dict[int, Trees]:
    """What its clients remember."""
    return {client: run.store.get(client) or {} for client in run.store.clients()}


def same(a: TinyRun, b: TinyRun) -> bool:
    """Bitwise equality of the server's state and of every client's memory."""
    mine, theirs = memories(a), memories(b)
    return (
        equal_trees(a.state, b.state)
        and mine.keys() == theirs.keys()
        and all(equal_trees(mine[k], theirs[k]) for k in mine)
    )


def as_module(model: Model, params: Any) -> nn.Module:
    """An ordinary module with these parameters, for references written with plain torch."""
    return model.module(params, {})
