"""What really travels: one round with a single step per client, every tree on the door counted by name."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from accord.config import RunConfig
from accord.core.keys import Key
from accord.core.tensors import Trees, num_bytes
from accord.core.types import Replies, World
from accord.engine.build import build_algorithm, build_data, build_model, build_setup, choose_device
from accord.engine.client import Site
from accord.engine.exchange import LocalExchange
from accord.engine.store import ClientStore
from accord.executors.sequential import Sequential


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

    def __init__(self, inner: LocalExchange, phase: str, parcels: list[Parcel]) -> None:
        self.inner, self.phase, self.parcels = inner, phase, parcels

    def __call__(
        self, task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees] | None = None
    ) -> Replies:
        replies = self.inner(task, clients, shared, private)
        own = (private or {}).get(replies.ids[0], {})
        self._note(task, "down", {**shared, **own})
        self._note(task, "up", replies.results[0].reply)
        return replies

    def _note(self, task: str, direction: str, trees: Trees) -> None:
        for name in sorted(trees):
            if size := num_bytes({name: trees[name]}):
                self.parcels.append(Parcel(self.phase, task, direction, name, size))


def measure_traffic(config: RunConfig) -> list[Parcel]:
    """The parcels of a client's round under this configuration. Nothing is written, next to nothing is trained."""
    config = replace(config, local=replace(config.local, steps=1))
    data = build_data(config)
    device = choose_device("cpu")
    model = build_model(config, data, None, device)
    algorithm = build_algorithm(config, build_setup(config, data, model))
    key = Key(config.seed)
    executor = Sequential(Site(data, key, device), algorithm.tasks)
    members = [k for k in range(len(data)) if data.sizes[k] > 0 and k not in data.unseen]
    world = World(0, members, data.sizes, key)
    parcels: list[Parcel] = []
    with tempfile.TemporaryDirectory() as folder:
        store = ClientStore(Path(folder), data.sizes, 1 << 30)
        inner = LocalExchange(executor, store, key, 0, algorithm.schedule.at(0))
        state = algorithm.start(algorithm.init(world), world, _Counting(inner, "start", parcels))
        algorithm.round(state, world, _Counting(inner, "round", parcels))
    return parcels
