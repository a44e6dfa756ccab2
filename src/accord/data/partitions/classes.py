"""Partitions by disjoint groups of classes, of the whole data set or of each domain."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from accord.data.checks import check_ids, labels_of
from accord.data.dealing import by_owner
from accord.data.federated import Dataset, Groups, Index
from accord.data.partitions.registry import partition
from accord.errors import ConfigError
from accord.settings import AtLeast


@partition("label_split", by_class=True)
def label_split(
    dataset: Dataset,
    clients: int,
    rng: np.random.Generator,
    *,
    groups: Annotated[
        Literal["even_odd", "halves"], "even_odd: every K-th class; halves: neighbouring classes together"
    ] = "even_odd",
) -> Groups:
    """Disjoint classes, one group of classes per client (FedMMD and FedFusion with two clients).

    Two clients and ten classes: 0 2 4 6 8 / 1 3 5 7 9 (`even_odd`) or 0 1 2 3 4 / 5 6 7 8 9 (`halves`). More
    clients deal the classes round in the same way. Nothing is random.
    """
    if clients > dataset.num_classes:
        raise ConfigError(
            f"label_split gives every client its own classes: {dataset.num_classes} classes are enough for "
            f"at most {dataset.num_classes} clients, not {clients}"
        )
    group = class_groups(dataset.num_classes, clients) if groups == "halves" else np.arange(dataset.num_classes)
    return by_owner((group % clients)[labels_of(dataset.train, dataset.num_classes)], clients)


@partition("domains", by_class=True)
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


def class_groups(classes: int, parts: int) -> Index:
    """[C] the part of each class when neighbouring classes stay together: 7 in 2 parts are 0-3 and 4-6."""
    return np.arange(classes, dtype=np.int64) * parts // classes
