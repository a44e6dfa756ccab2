"""Partitions of sizes (equal or skewed, labels IID) and partitions the data set brings along."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from accord.data.federated import Dataset, Groups
from accord.data.partition_checks import check_ids, labels_of
from accord.data.partition_core import by_owner, enough, in_proportion, partition
from accord.data.partition_labels import class_groups
from accord.errors import ConfigError
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


@partition("domains")
def domains(
    dataset: Dataset,
    clients: int,
    rng: np.random.Generator,
    *,
    clients_per_domain: Annotated[int, AtLeast(1), "clients that share a domain, each with its own classes"] = 2,
) -> Groups:
    """Every domain divided among a few clients by neighbouring classes (PACS: 0-3 and 4-6 of each style).

    Client d * clients_per_domain + j has the j-th group of classes of domain d. Nothing is random.
    """
    domain = check_ids(dataset.train_domains, dataset.train, "domains")
    count = int(domain.max()) + 1
    fitting = count * clients_per_domain
    if clients != fitting:
        raise ConfigError(
            f"{count} domains of {clients_per_domain} clients are {fitting} clients, not {clients}; "
            f"set clients = {fitting}"
            + (f" or clients_per_domain = {clients // count}" if clients % count == 0 else "")
        )
    if clients_per_domain > dataset.num_classes:
        raise ConfigError(
            f"{dataset.num_classes} classes cannot be divided among {clients_per_domain} clients; "
            f"clients_per_domain may be at most {dataset.num_classes}"
        )
    group = class_groups(dataset.num_classes, clients_per_domain)
    labels = labels_of(dataset.train, dataset.num_classes)
    return by_owner(domain * clients_per_domain + group[labels], clients)


@partition("natural", may_be_empty=True)
def natural(dataset: Dataset, clients: int, rng: np.random.Generator) -> Groups:
    """The clients the data set itself names (writers, speakers, hospitals); nothing is dropped.

    A client without training samples stays, empty, so that client numbers keep their meaning.
    """
    ids = check_ids(dataset.train_clients, dataset.train, "natural clients")
    if ids.max() >= clients:
        raise ConfigError(
            f"data set {dataset.name!r} has {ids.max() + 1} natural clients; set clients = {ids.max() + 1}, "
            f"not {clients}"
        )
    return Groups.by_id(ids, clients)
