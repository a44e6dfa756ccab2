"""Federations whose skews are known, made of the embedded digits or of a drawn table: for tests and for calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch

from accord.data import federate, load_dataset
from accord.data.federated import Dataset, FederatedData, Groups, Pool


@dataclass(frozen=True)
class Skewed:
    """A federation, and what is wrong with it; `perhaps` may be found or not, everything else must not be."""

    data: FederatedData
    skews: frozenset[str]
    perhaps: frozenset[str] = frozenset()


@lru_cache(maxsize=1)
def digits() -> Dataset:
    return load_dataset("mnist5k")


@lru_cache(maxsize=64)
def table(seed: int, samples: int = 3000, columns: int = 8, classes: int = 3, noise: float = 0.3) -> Dataset:
    """Points around centres of their classes: the classes overlap a little."""
    rng = np.random.default_rng([seed, 1])
    centres = rng.normal(size=(classes, columns)) * 1.5
    y = rng.integers(0, classes, samples)
    x = centres[y] + rng.normal(size=(samples, columns)) * (1 + noise)
    pools = [Pool(torch.tensor(part, dtype=torch.float32), torch.tensor(y[at])) for part, at in _halves(x)]
    return Dataset("points", *pools, tuple(map(str, range(classes))))


def _halves(x: np.ndarray) -> list[tuple[np.ndarray, slice]]:
    cut = len(x) * 5 // 6
    return [(x[:cut], slice(0, cut)), (x[cut:], slice(cut, None))]


def base(kind: str, seed: int) -> Dataset:
    return digits() if kind == "digits" else table(seed)


def dealt(
    kind: str, seed: int, clients: int, partition: str = "iid", transform: str = "none", **settings: object
) -> FederatedData:
    own = {"transform_settings": settings.pop("turned", {})}
    return federate(
        base(kind, seed),
        clients=clients,
        partition=partition,
        partition_settings=settings,
        transform=transform,
        seed=seed,
        **own,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class PerClient:
    """A change of some clients' inputs."""

    change: Callable[[int, torch.Tensor], torch.Tensor]

    def __call__(self, client: int, index: np.ndarray, x: torch.Tensor) -> torch.Tensor:
        return self.change(client, x)


def changed(data: FederatedData, change: Callable[[int, torch.Tensor], torch.Tensor]) -> FederatedData:
    return replace(data, transform=PerClient(change))


def relabelled(data: FederatedData, change: Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]) -> FederatedData:
    """Labels of every client's training and test samples, changed by a function of client, inputs and labels."""
    pools = {}
    for name, groups in (("train_pool", data.train), ("test_pool", data.test)):
        pool = getattr(data, name)
        y = pool.y.clone()
        for client in range(len(data)):
            where = torch.from_numpy(groups[client])
            y[where] = change(client, pool.x[where], pool.y[where])
        pools[name] = replace(pool, y=y)
    return replace(data, **pools)


def resized(data: FederatedData, seed: int, spread: float = 1.3) -> FederatedData:
    """The same samples dealt anew, by log-normal sizes."""
    rng = np.random.default_rng([seed, 2])
    order = rng.permutation(data.train.order)
    shares = np.exp(rng.normal(0, spread, len(data)))
    ends = np.maximum(np.cumsum(shares / shares.sum() * (len(order) - 5 * len(data))), 0).astype(int)
    ends = ends + 5 * np.arange(1, len(data) + 1)
    return replace(data, train=Groups.of(np.split(order, ends[:-1])))


def copied(data: FederatedData, seed: int, share: float = 0.1) -> FederatedData:
    """Every other client has also some samples of the one before it."""
    rng = np.random.default_rng([seed, 3])
    lists = [data.train[k] for k in range(len(data))]
    for k in range(1, len(lists), 2):
        lists[k] = np.concatenate([lists[k], rng.choice(lists[k - 1], max(1, int(share * len(lists[k - 1]))), False)])
    return replace(data, train=Groups.of(lists))


def swapped(client: int, x: torch.Tensor, y: torch.Tensor, classes: int = 10) -> torch.Tensor:
    """Every second client names its classes otherwise: the next one's name."""
    return (y + 1) % classes if client % 2 else y


def noisy(client: int, x: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(client)
    return x + 0.5 * torch.randn(x.shape, generator=generator) if client % 2 else x


def brighter(client: int, x: torch.Tensor) -> torch.Tensor:
    return x * (0.5 + 0.25 * (client % 4)) + 0.15 * (client % 4)


def styles(client: int, x: torch.Tensor) -> torch.Tensor:
    """Three domains: as it is, negative, blurred."""
    if client % 3 == 1:
        return x.amax() - x
    if client % 3 == 2:
        return torch.nn.functional.avg_pool2d(x, 5, 1, 2)
    return x


def scaled(client: int, x: torch.Tensor) -> torch.Tensor:
    """A machine of another make: other zero and unit in half of the columns."""
    shifted = x.clone()
    shifted[:, ::2] = shifted[:, ::2] * (1 + 0.5 * (client % 3)) + (client % 3)
    return shifted


def generated(name: str, seed: int, clients: int = 10) -> Skewed:
    """One of `FEDERATIONS`."""
    return FEDERATIONS[name](seed, clients)


def _is(data: FederatedData, *skews: str, perhaps: tuple[str, ...] = ()) -> Skewed:
    return Skewed(data, frozenset(skews), frozenset(perhaps))


UNEVEN = ("quantity", "rare")  # what a Dirichlet or shard division also brings
FEDERATIONS: dict[str, Callable[[int, int], Skewed]] = {
    "iid": lambda s, k: _is(dealt("digits", s, k)),
    "iid, unequal sizes": lambda s, k: _is(resized(dealt("digits", s, k), s), "quantity"),
    "iid table": lambda s, k: _is(dealt("table", s, k)),
    "labels, Dirichlet 0.1": lambda s, k: _is(dealt("digits", s, k, "dirichlet", alpha=0.1), "labels", perhaps=UNEVEN),
    "labels, two classes each": lambda s, k: _is(dealt("digits", s, k, "sorted_shards"), "labels", perhaps=UNEVEN),
    "labels, table": lambda s, k: _is(dealt("table", s, k, "dirichlet", alpha=0.5), "labels", perhaps=UNEVEN),
    "rotation": lambda s, k: _is(
        dealt("digits", s, k, transform="rotate", turned={"step": 90.0, "count": 4}), "features"
    ),
    "permutation": lambda s, k: _is(dealt("digits", s, k, transform="permute"), "features"),
    "domains, styles": lambda s, k: _is(changed(dealt("digits", s, k), styles), "features"),
    "domains, brightness": lambda s, k: _is(changed(dealt("digits", s, k), brighter), "features"),
    "noise": lambda s, k: _is(changed(dealt("digits", s, k), noisy), "features"),
    "machines, table": lambda s, k: _is(changed(dealt("table", s, k), scaled), "features"),
    "concept": lambda s, k: _is(relabelled(dealt("digits", s, k), swapped), "concept"),
    "concept, table": lambda s, k: _is(
        relabelled(dealt("table", s, k), lambda c, x, y: swapped(c, x, y, 3)), "concept"
    ),
    "duplicates": lambda s, k: _is(copied(dealt("digits", s, k), s), "duplicates"),
    "labels and rotation": lambda s, k: _is(
        dealt("digits", s, k, "dirichlet", "rotate", alpha=0.3, turned={"step": 90.0, "count": 4}),
        "labels",
        "features",
        perhaps=UNEVEN,
    ),
    "quantity and duplicates": lambda s, k: _is(copied(resized(dealt("digits", s, k), s), s), "quantity", "duplicates"),
    "labels and concept": lambda s, k: _is(
        relabelled(dealt("digits", s, k, "dirichlet", alpha=1.0), swapped), "labels", "concept", perhaps=UNEVEN
    ),
    "rotation and concept": lambda s, k: _is(
        relabelled(
            dealt("digits", s, k, transform="rotate", turned={"step": 90.0, "count": 2}),
            lambda c, x, y: swapped(c // 2, x, y),
        ),
        "features",
        "concept",
    ),
}
