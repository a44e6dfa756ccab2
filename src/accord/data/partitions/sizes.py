"""Partitions whose labels are IID: clients of equal size, or of very different ones."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from accord.data.dealing import by_owner, enough, in_proportion
from accord.data.federated import Dataset, Groups
from accord.data.partitions.registry import partition
from accord.settings import AtLeast, Range


@partition("iid")
def iid(dataset: Dataset, clients: int, rng: np.random.Generator) -> Groups:
    """A random split into equal parts; sizes differ by at most one and all samples are used."""
    samples = len(dataset.train)
    enough(samples, clients)
    return by_owner(rng.permutation(np.arange(samples, dtype=np.int64) * clients // samples), clients)


@partition("quantity")
def quantity(
    dataset: Dataset,
    clients: int,
    rng: np.random.Generator,
    *,
    law: Annotated[Literal["power", "lognormal"], "how client sizes are distributed"] = "power",
    spread: Annotated[float, Range(low=0, high=10), "power: exponent; lognormal: sigma; 0: equal sizes"] = 1.0,
    min_size: Annotated[int, AtLeast(1), "samples every client has at least"] = 10,
) -> Groups:
    """Clients of very different size, each an IID sample.

    Every client gets `min_size` samples; the others are divided in proportion to rank^-spread, ranks dealt at
    random (`power`), or to exp(spread * z), z standard normal (`lognormal`). All samples are used.
    """
    samples = len(dataset.train)
    enough(samples, clients, min_size)
    if law == "power":
        weights = rng.permutation(np.arange(1, clients + 1, dtype=np.float64)) ** -spread
    else:
        weights = np.exp(spread * rng.standard_normal(clients))
    sizes = min_size + in_proportion(weights, samples - clients * min_size)
    return by_owner(rng.permutation(np.repeat(np.arange(clients, dtype=np.int64), sizes)), clients)
