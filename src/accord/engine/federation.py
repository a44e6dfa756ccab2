"""A federation: its data, model and method, built once, checked before anything is written.

`run`, `resume`, `explain`, `profile`, studies, tests and notebooks all work with it:

    federation = accord.Federation.build(config)            # or with data= and model= of your own
    executor = federation.executor()
    with federation.memory() as store:                      # what clients remember
        exchange = federation.exchange(executor, store, round=0)
        state = federation.first_state(exchange)
        state, replies = federation.algorithm.round(state, federation.world(0), exchange)
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import nn

from accord.client import Executor, Site
from accord.config import RunConfig, catalog, config_hash
from accord.core.algorithm import Algorithm
from accord.core.keys import Key
from accord.core.model import Model
from accord.core.task import Task
from accord.core.types import Exchange, Facts, State, World
from accord.data.federated import Dataset, FederatedData
from accord.engine.build import (
    build_algorithm,
    build_data,
    build_model,
    build_setup,
    check_data,
    choose_device,
    fits,
    judged_on_validation,
    load_data,
    pooled,
)
from accord.engine.checkpoint import to_device
from accord.engine.exchange import LocalExchange, Policy
from accord.engine.identity import Identity, identity
from accord.engine.planned import check_steps
from accord.engine.problem import check_asked, check_defined, facts_of
from accord.engine.settled import handed_over, settled
from accord.engine.store import ClientStore
from accord.engine.trial import trains_on_one, try_network
from accord.errors import ConfigError
from accord.executors import choose, make_executor


def _unobserved(done: int, total: int) -> None:
    """Nobody wants to know how many clients have answered."""


@dataclass(frozen=True)
class Federation:
    """Everything a run needs, and nothing that changes while it goes on."""

    algorithm: Algorithm
    data: FederatedData
    model: Model
    config: RunConfig
    own_data: bool = False  # whether they were given, and are not those the configuration names
    own_network: bool = False
    real: bool = False  # its clients are nodes on a network, and their data is not here

    @classmethod
    def build(
        cls, config: RunConfig, data: FederatedData | Dataset | None = None, model: nn.Module | None = None
    ) -> Federation:
        """From a configuration; `data` and `model` replace its own, for data and networks that have no name."""
        if data is not None and not isinstance(data, FederatedData | Dataset):
            raise ConfigError(f"data must be made with accord.from_arrays(x, y) or its like, not {type(data).__name__}")
        if model is not None and not isinstance(model, nn.Module):
            raise ConfigError(f"model must be a torch.nn.Module, not a {type(model).__name__}")
        device = choose_device(config.device)
        given = load_data(config) if data is None else data
        config = settled(config if data is None else handed_over(config), given)
        divided = given if isinstance(given, FederatedData) else build_data(config, given)
        check_asked(config.task, divided)
        check_data(divided)
        if config.evaluate.split == "validation":
            divided = judged_on_validation(divided)
        facts = facts_of(config, divided)
        made = build_model(config, facts, model, device)
        try_network(made, divided)
        algorithm = build_algorithm(config, build_setup(config, facts, made))
        check_defined(config.algorithm.name, algorithm, facts)
        choose(config.executor, device, len(facts.members))  # says why, where it cannot be had here
        return cls(algorithm, divided, made, config, data is not None, model is not None)._looked_over()

    def _looked_over(self) -> Federation:
        """Itself, if its clients can take the steps they will be asked for, with a note where some cannot."""
        on_one = partial(trains_on_one, self.model, self.data)
        remarks = check_steps(self.algorithm, self.facts, self.config.clients.tolerate, on_one)
        note = "; ".join([*([self.data.note] if self.data.note else []), *remarks])
        return replace(self, data=replace(self.data, note=note)) if remarks else self

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.model.device

    @cached_property
    def key(self) -> Key:
        """Of everything random in it."""
        return Key(self.config.seed)

    @cached_property
    def train_data(self) -> FederatedData:
        """What clients train on: their own data, or all of it in one place where the method wants that."""
        return pooled(self.data) if self.algorithm.pools_data else self.data

    @cached_property
    def judged(self) -> FederatedData:
        """What models are judged on, where the model is: on a GPU, unless it would take much of its memory."""
        return self.data.on(self.device) if fits(self.data, self.device) else self.data

    @cached_property
    def facts(self) -> Facts:
        """What is known of the clients that train."""
        return facts_of(self.config, self.train_data)

    @cached_property
    def identity(self) -> Identity:
        """Of its data, network and settings: what a run is resumed with must have the same."""
        return identity(self.data, self.model, config_hash(self.config), catalog.sources(self.config))

    def world(self, round: int) -> World:
        """What the server knows in `round`."""
        return World(round, self.facts.members, self.facts.sizes, self.key)

    def site(self, *, with_test: bool = False) -> Site:
        """Home to all its clients; `with_test` hands them their own test data."""
        return Site(self.train_data, self.key, self.device, with_test)

    def executor(
        self,
        done: Callable[[int, int], None] = _unobserved,
        *,
        with_test: bool = False,
        more: Mapping[str, Task] | None = None,
    ) -> Executor:
        """Whoever runs its clients, also tasks that are not the method's (`more`); `done` is told how many answered."""
        return make_executor(
            self.config.executor,
            self.site(with_test=with_test),
            {**self.algorithm.tasks, **(more or {})},
            clients=len(self.facts.members),
            workers=self.config.workers,
            done=done,
        )

    @contextmanager
    def memory(self, folder: Path | None = None) -> Iterator[ClientStore]:
        """What its clients remember, in `folder` where it outgrows the RAM; without one, in a passing folder."""
        limit = self.config.checkpoint.memory_limit_mb << 20
        if folder is not None:
            yield ClientStore(folder, self.facts.sizes, limit)
            return
        with tempfile.TemporaryDirectory(prefix="accord-memory-") as passing:
            yield ClientStore(Path(passing), self.facts.sizes, limit)

    def exchange(self, executor: Executor, store: ClientStore, round: int, *, rehearsal: bool = False) -> LocalExchange:
        """The door to the clients in `round`. In a `rehearsal` everybody answers and nobody keeps anything."""
        clients = self.config.clients
        policy = Policy(minimum=clients.minimum, tolerate=clients.tolerate)
        return LocalExchange(
            executor,
            store,
            self.key,
            round,
            self.algorithm.schedule.at(round),
            policy=replace(policy, minimum=1) if rehearsal else policy,
            drop_rate=0.0 if rehearsal else clients.drop_rate,
            keep_memory=not rehearsal,
            name_of=self.train_data.name_of,
        )

    def first_state(self, exchange: Exchange) -> State:
        """The server's state before the first round; what a method prepares with its clients included."""
        world = self.world(0)
        return self.algorithm.start(to_device(self.algorithm.init(world), self.device), world, exchange)
