"""A tiny federation for tests: four unequal clients, an 8-input network, any registered method."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from accord.algorithms import ALGORITHMS
from accord.core.algorithm import Algorithm, Setup
from accord.core.keys import Key
from accord.core.model import Model
from accord.core.optim import SGD, Optimizer, Schedule
from accord.core.plan import Plan
from accord.core.types import Replies, State, World
from accord.data.federated import FederatedData, Groups, Pool
from accord.engine.checkpoint import to_device
from accord.engine.client import Executor, Site
from accord.engine.exchange import LocalExchange
from accord.engine.sequential import Sequential
from accord.engine.store import ClientStore
from accord.models import MODELS

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
        return Model(MODELS[name](shape, classes, **settings), device, **(form or {}))


class Everyone:
    """All clients in every round."""

    def __call__(self, state: State, world: World) -> list[int]:
        return sorted(int(i) for i in world.clients)


class Given:
    """A fixed cohort per round."""

    def __init__(self, *cohorts: Sequence[int]) -> None:
        self.cohorts = cohorts

    def __call__(self, state: State, world: World) -> list[int]:
        return sorted(self.cohorts[world.round % len(self.cohorts)])


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
        **setup: Any,
    ) -> None:
        self.data = data or tiny_data(dtype=torch.get_default_dtype())
        self.model = model or tiny_model()
        self.setup = tiny_setup(self.data, self.model, **setup)
        self.algorithm: Algorithm = (
            ALGORITHMS[algorithm](self.setup, **(settings or {})) if isinstance(algorithm, str) else algorithm
        )
        self.key = Key(seed)
        site = Site(self.data, self.key, self.model.device, with_test)
        self.executor: Executor = executor(site, self.algorithm.tasks)
        where = folder or Path(tempfile.mkdtemp(prefix="accord-test-"))
        if folder is None:
            weakref.finalize(self, shutil.rmtree, where, ignore_errors=True)
        self.store = ClientStore(where, self.data.sizes, 1 << 30)
        self.round = 0
        self.replies: Replies | None = None
        self.state = to_device(self.algorithm.init(self.world()), self.model.device)
        self.state = self.algorithm.start(self.state, self.world(), self.exchange())

    def world(self) -> World:
        return World(self.round, list(range(len(self.data))), self.data.sizes, self.key)

    def exchange(self) -> LocalExchange:
        lr = self.algorithm.schedule.at(self.round)
        return LocalExchange(self.executor, self.store, self.key, self.round, lr)

    def rounds(self, count: int = 1) -> TinyRun:
        for _ in range(count):
            self.state, self.replies = self.algorithm.round(self.state, self.world(), self.exchange())
            self.round += 1
        return self

    def batches(self, client: int, task: str = "train", round: int | None = None) -> list[np.ndarray]:
        """The positions (in the client's own data) of every step's samples, as the run draws them."""
        at = self.round if round is None else round
        rng = self.key.at(f"order.{task}", at, client)
        return self.algorithm.tasks[task].plan.schedule(rng, int(self.data.sizes[client]))

    def close(self) -> None:
        self.executor.close()


def equal_trees(a: Any, b: Any) -> bool:
    """Bitwise equality of two Trees."""
    return a.keys() == b.keys() and all(
        a[t].keys() == b[t].keys() and all(torch.equal(a[t][n], b[t][n]) for n in a[t]) for t in a
    )


def as_module(model: Model, params: Any) -> nn.Module:
    """An ordinary module with these parameters, for references written with plain torch."""
    return model.module(params, {})
