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

from accord.attacks import Attack, Attacked, Hostile
from accord.client import Executor, Site, Sums
from accord.config import RunConfig, catalog, config_hash
from accord.core.algorithm import Algorithm
from accord.core.disclosure import disclosures
from accord.core.keys import Key
from accord.core.model import Model
from accord.core.sums import averaged_trees
from accord.core.task import Task
from accord.core.types import Exchange, Facts, State, World
from accord.data.federated import Dataset, FederatedData
from accord.engine.arrivals import StreamingExchange
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
from accord.engine.exchange import EmptyRound, Policy
from accord.engine.filtering import budget_of, filters_of, privately
from accord.engine.identity import Identity, identity
from accord.engine.pacing import build_pace
from accord.engine.planned import check_steps
from accord.engine.problem import check_asked, check_defined, facts_of
from accord.engine.settled import handed_over, settled
from accord.engine.store import ClientStore
from accord.engine.suitability import check_filters
from accord.engine.trial import trains_on_one, try_network
from accord.errors import ConfigError
from accord.executors import choose, make_executor
from accord.filters import NO_FILTERS, Filters
from accord.pace import Clock, Pace


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
    filters: Filters = NO_FILTERS  # between its clients and its server
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
        setup = build_setup(config, facts, made)
        budget = budget_of(config, facts, setup)
        algorithm = build_algorithm(config, privately(setup, budget))
        check_defined(config.algorithm.name, algorithm, facts)
        filters = filters_of(config, budget, algorithm)
        choose(config.executor, device, len(facts.members))  # says why, where it cannot be had here
        built = cls(algorithm, divided, made, config, data is not None, model is not None, filters)._looked_over()
        _ = built.pace, built.sums  # traces are read here, and a method that cannot do with sums is refused
        return built

    def _looked_over(self) -> Federation:
        """Itself, if its clients can take the steps they will be asked for, with a note where some cannot."""
        check_filters(self.config, self.facts, self.algorithm, self.site(), self.filters)
        on_one = partial(trains_on_one, self.model, self.data)
        remarks = check_steps(self.algorithm, self.facts, self.config.clients.tolerate, on_one)
        if self.hostile is not None:
            remarks = [*remarks, self.hostile.note(len(self.data))]
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
        data = self.data if self.hostile is None else self.hostile.poisoned(self.data)
        return pooled(data) if self.algorithm.pools_data else data

    @cached_property
    def hostile(self) -> Hostile | None:
        """The clients that attack, where that is simulated."""
        asked = self.config.attack
        attack = catalog.registry("attack")[asked.name](**asked.options)
        if attack == Attack():
            return None
        if self.algorithm.pools_data and attack.change is not None:
            raise ConfigError(
                f"attack {asked.name} changes what clients send, and with algorithm {self.config.algorithm.name} they "
                "send nothing; choose label_flip, or another algorithm"
            )
        members = facts_of(self.config, self.data).members
        return Hostile.of(asked, attack, members, self.key)

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
        found = identity(self.data, self.model, config_hash(self.config), catalog.sources(self.config))
        if self.pace is not None and self.pace.digest:
            found["settings"]["traces"] = self.pace.digest
        return found

    @cached_property
    def pace(self) -> Pace | None:
        """How long its clients take and when they are there; None where that is not simulated."""
        return build_pace(self.config, self.train_data, self.facts, self.algorithm.tasks, self.key)

    def clock(self, state: State | None = None) -> Clock:
        """The simulated time, from the beginning or as it was kept in a state of a run."""
        return Clock(self.key, self.pace, state)

    @cached_property
    def sums(self) -> Sums | None:
        """Which answers may come as means of blocks of clients, where that was asked for."""
        block, trees = self.config.partial_sums, averaged_trees(self.algorithm)
        if block and not trees:
            raise ConfigError(
                f"partial_sums = {block}: the server of {self.config.algorithm.name!r} reads more of the clients' "
                "answers than one weighted mean of each tree: set partial_sums to 0"
            )
        return Sums(trees, block) if block else None

    def world(self, round: int, clock: Clock | None = None) -> World:
        """What the server knows in `round`; by the `clock`, who can be asked, and an `EmptyRound` where too few can."""
        members = self.facts.members
        if clock is not None and clock.pace is not None:
            members = clock.present(round, members)
            least = min(self.config.clients.minimum, len(self.facts.members))
            if len(members) < least:
                clock.wait()
                raise EmptyRound(
                    f"{len(members)} of {len(self.facts.members)} clients are there, at least {least} are needed "
                    "(clients.minimum)"
                )
        return World(round, members, self.facts.sizes, self.key)

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
        made = make_executor(
            self.config.executor,
            self.site(with_test=with_test),
            {**self.algorithm.tasks, **(more or {})},
            clients=len(self.facts.members),
            workers=self.config.workers,
            done=done,
        )
        if self.hostile is None or self.hostile.attack.change is None:
            return made
        return Attacked(made, self.hostile, self.hostile.attack.change, disclosures(self.algorithm))

    @contextmanager
    def memory(self, folder: Path | None = None) -> Iterator[ClientStore]:
        """What its clients remember, in `folder` where it outgrows the RAM; without one, in a passing folder."""
        limit = self.config.checkpoint.memory_limit_mb << 20
        if folder is not None:
            yield ClientStore(folder, self.facts.sizes, limit)
            return
        with tempfile.TemporaryDirectory(prefix="accord-memory-") as passing:
            yield ClientStore(Path(passing), self.facts.sizes, limit)

    def exchange(
        self,
        executor: Executor,
        store: ClientStore,
        round: int,
        *,
        rehearsal: bool = False,
        clock: Clock | None = None,
    ) -> StreamingExchange:
        """The door to the clients in `round`, by the run's `clock`; without one no time passes.

        In a `rehearsal` everybody answers and nobody keeps anything.
        """
        clients, members = self.config.clients, len(self.facts.members)
        policy = Policy(minimum=clients.minimum, tolerate=clients.tolerate)
        return StreamingExchange(
            executor,
            store,
            self.key,
            round,
            self.algorithm.schedule.at(round),
            policy=replace(policy, minimum=1) if rehearsal else policy,
            drop_rate=0.0 if rehearsal else clients.drop_rate,
            keep_memory=not rehearsal,
            name_of=self.train_data.name_of,
            filters=self.filters,
            clock=clock,
            cohort=(clients.cohort(members), clients.asked(members)),
            sums=None if rehearsal else self.sums,
        )

    def first_state(self, exchange: Exchange) -> State:
        """The server's state before the first round; what a method prepares with its clients included."""
        world = self.world(0)
        return self.algorithm.start(to_device(self.algorithm.init(world), self.device), world, exchange)
