"""Who runs a federation's clients for the time of a run: an executor on this machine, or nodes on a network.

A run (`engine/run.py`) is the same for both: rounds, logs, checkpoints, summary. What differs stands here as two
protocols, and `Simulation` is the first of them; `accord.flower` has the other.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from accord.client import Executor
from accord.core.tensors import Trees
from accord.core.types import World
from accord.engine.checkpoint import to_device
from accord.engine.exchange import RoundExchange
from accord.engine.federation import Federation
from accord.engine.personal import OwnModels
from accord.engine.store import ClientStore, Remembered
from accord.observe import Audience
from accord.pace.clock import Clock


class Clients(Protocol):
    """The clients at work."""

    def start(self) -> RoundExchange:
        """The exchange before the first round."""
        ...

    def exchange(self, round: int) -> RoundExchange:
        """The exchange of a round, counted from 0."""
        ...

    def rehearsal(self) -> RoundExchange:
        """The exchange after the last round: everybody answers and nobody keeps anything."""
        ...

    def world(self, round: int) -> World:
        """What the server knows in a round; an `EmptyRound` where too few clients can be asked."""
        ...

    def under_way(self) -> Trees:
        """What a checkpoint must hold beside the server's state: the time, and work that has begun."""
        ...

    def memory_of(self, client: int) -> Trees:
        """What a client keeps, as far as it is known here, where models are judged."""
        ...

    def settled(self, round: int) -> None:
        """All up to this round (counted from 1) is in a checkpoint."""
        ...

    def close(self) -> None:
        """Give back processes, connections, memory."""
        ...


class Hosting(Protocol):
    """Where clients live."""

    def memory(self, folder: Path) -> AbstractContextManager[Remembered]:
        """What they remember, or where it is; `folder` is the checkpoint's."""
        ...

    def own_models(self) -> OwnModels:
        """Who gathers the clients' own models at the end, if anybody does."""
        ...

    def clients(
        self, store: Remembered, own: OwnModels, audience: Audience, *, with_test: bool, kept: Trees
    ) -> Clients:
        """Let them begin. `with_test`: they judge models on their own test data. `kept` is the checkpoint's state."""
        ...


class Simulation:
    """All clients here, run by an executor."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation

    def memory(self, folder: Path) -> AbstractContextManager[Remembered]:
        return self.federation.memory(folder)

    def own_models(self) -> OwnModels:
        return OwnModels.of(self.federation)

    def clients(
        self, store: Remembered, own: OwnModels, audience: Audience, *, with_test: bool, kept: Trees
    ) -> Clients:
        """Workers are forked here, before any observer starts a thread."""
        assert isinstance(store, ClientStore)
        executor = self.federation.executor(audience.client_done_in_round, with_test=with_test, more=own.tasks)
        return _Simulated(self.federation, executor, store, self.federation.clock(kept))


class _Simulated:
    """An executor, what its clients remember, and the simulated time."""

    def __init__(self, federation: Federation, executor: Executor, store: ClientStore, clock: Clock) -> None:
        self.federation, self.executor, self.store, self.clock = federation, executor, store, clock

    def start(self) -> RoundExchange:
        return self.exchange(0)

    def exchange(self, round: int) -> RoundExchange:
        return self.federation.exchange(self.executor, self.store, round, clock=self.clock)

    def rehearsal(self) -> RoundExchange:
        rounds = self.federation.config.rounds
        return self.federation.exchange(self.executor, self.store, rounds, rehearsal=True)

    def world(self, round: int) -> World:
        return self.federation.world(round, self.clock)

    def under_way(self) -> Trees:
        return self.clock.trees()

    def memory_of(self, client: int) -> Trees:
        return to_device(self.store.get(client) or {}, self.federation.device)

    def settled(self, round: int) -> None:
        """Nothing waited for it."""

    def close(self) -> None:
        self.executor.close()
