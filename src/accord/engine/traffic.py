"""What really travels: one round with a single step per client, every tree on the door counted by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from accord.config import RunConfig
from accord.core.tensors import Trees, num_bytes
from accord.core.types import Exchange, Replies
from accord.engine.federation import Federation


@dataclass(frozen=True)
class Parcel:
    """One named tree on its way to or from one client."""

    phase: str  # "start": once, before the first round; "round": every round
    task: str
    direction: str  # "down" or "up"
    tree: str
    bytes: int


class _Counting:
    """An exchange that notes what passes, for the first client of each call."""

    def __init__(self, inner: Exchange, phase: str, parcels: list[Parcel]) -> None:
        self.inner, self.phase, self.parcels = inner, phase, parcels

    def __call__(
        self, task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees] | None = None
    ) -> Replies:
        replies = self.inner(task, clients, shared, private)
        alone = (private or {}).get(replies.ids[0], {})
        self._note(task, "down", {**shared, **alone})
        self._note(task, "up", replies.results[0].reply)
        return replies

    def _note(self, task: str, direction: str, trees: Trees) -> None:
        for name in sorted(trees):
            if size := num_bytes({name: trees[name]}):
                self.parcels.append(Parcel(self.phase, task, direction, name, size))


class Traffic(list[Parcel]):
    """The parcels of a client's round, and the data's name and number of clients they were counted with."""

    def __init__(self, parcels: Sequence[Parcel], data: str, clients: int) -> None:
        super().__init__(parcels)
        self.data, self.clients = data, clients


def measure_traffic(config: RunConfig) -> Traffic:
    """The parcels of a client's round under this configuration; none where all data is pooled, as then nobody sends.

    Nothing is written, next to nothing is trained.
    """
    local, clients = replace(config.local, steps=1), replace(config.clients, drop_rate=0.0)
    config = replace(config, local=local, clients=clients, device="cpu", executor="sequential", compile=False)
    federation = Federation.build(config)
    executor = federation.executor()
    parcels: list[Parcel] = []
    with federation.memory() as store:
        exchange = federation.exchange(executor, store, 0)
        state = federation.first_state(_Counting(exchange, "start", parcels))
        federation.algorithm.round(state, federation.world(0), _Counting(exchange, "round", parcels))
    found = [] if federation.algorithm.pools_data else parcels
    return Traffic(found, federation.data.name, len(federation.data))
