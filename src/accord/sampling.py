"""Who takes part in a round. Every choice is a function of (seed, round), so it survives a resume."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accord.core.algorithm import Sampler
from accord.core.types import State, World
from accord.settings import Registry

SAMPLERS: Registry[Callable[[int], Sampler]] = Registry("sampler")  # made from the size of a round's cohort


@SAMPLERS.add("uniform")
@dataclass(frozen=True)
class Uniform:
    """`count` clients, each equally likely, without replacement."""

    count: int

    def size(self, clients: int) -> int:
        """At most `count`."""
        return min(self.count, clients)

    def __call__(self, state: State, world: World) -> list[int]:
        """The round's cohort, sorted."""
        rng = world.key.at("cohort", world.round)
        chosen = rng.choice(len(world.clients), size=min(self.count, len(world.clients)), replace=False)
        return sorted(int(world.clients[i]) for i in chosen)


@SAMPLERS.add("weighted")
@dataclass(frozen=True)
class Weighted:
    """`count` clients without replacement, likelier the more samples they hold."""

    count: int

    def size(self, clients: int) -> int:
        """At most `count`."""
        return min(self.count, clients)

    def __call__(self, state: State, world: World) -> list[int]:
        """The round's cohort, sorted."""
        rng = world.key.at("cohort", world.round)
        ids = np.asarray(world.clients)
        sizes = world.sizes[ids].astype(np.float64)
        count = min(self.count, int((sizes > 0).sum()))
        chosen = rng.choice(len(ids), size=count, replace=False, p=sizes / sizes.sum())
        return sorted(int(i) for i in ids[chosen])


@SAMPLERS.add("cyclic")
@dataclass(frozen=True)
class Cyclic:
    """Clients in turn, `count` at a time, in one shuffled order fixed by the seed."""

    count: int

    def size(self, clients: int) -> int:
        """At most `count`."""
        return min(self.count, clients)

    def __call__(self, state: State, world: World) -> list[int]:
        """The round's cohort, sorted."""
        ids = world.key.at("cohort").permutation(np.asarray(world.clients))
        count = min(self.count, len(ids))
        return sorted(int(ids[(world.round * count + i) % len(ids)]) for i in range(count))


@SAMPLERS.add("poisson")
@dataclass(frozen=True)
class Poisson:
    """Each client by itself, with the chance that makes `count` the mean: what privacy by sampling is reckoned for."""

    count: int

    def size(self, clients: int) -> int:
        """In the mean."""
        return min(self.count, clients)

    def __call__(self, state: State, world: World) -> list[int]:
        """The round's cohort, sorted; it may be empty, and the round is then skipped."""
        rng = world.key.at("cohort", world.round)
        chosen = rng.random(len(world.clients)) < self.count / len(world.clients)
        return sorted(int(client) for client, asked in zip(world.clients, chosen, strict=True) if asked)


@dataclass(frozen=True)
class Everyone:
    """All clients, every round."""

    def size(self, clients: int) -> int:
        """All of them."""
        return clients

    def __call__(self, state: State, world: World) -> list[int]:
        """All ids."""
        return sorted(int(i) for i in world.clients)
