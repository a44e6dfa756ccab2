"""Partitions by sorting or grouping labels: shards and disjoint classes."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from accord.data.federated import Dataset, Groups, Index
from accord.data.partition_checks import labels_of
from accord.data.partition_core import by_owner, partition, rank_within, shuffled_within
from accord.errors import ConfigError, DataError
from accord.settings import AtLeast


def hand_out(shards: int, clients: int, each: int, rng: np.random.Generator) -> Index:
    """[shards] the client that gets each shard, `each` random ones per client; -1 for shards left over."""
    client = np.full(shards, -1, dtype=np.int64)
    client[rng.permutation(shards)[: clients * each]] = np.repeat(np.arange(clients), each)
    return client


@partition("class_shards")
def class_shards(
    dataset: Dataset,
    clients: int,
    rng: np.random.Generator,
    *,
    shards_per_class: Annotated[int, AtLeast(1), "pieces every class is cut into"] = 20,
    shards_per_client: Annotated[int, AtLeast(1), "random pieces a client gets"] = 2,
    leave_unused: Annotated[bool, "allow pieces that no client gets"] = False,
) -> Groups:
    """Every class cut at random into equal shards; each client gets a few, perhaps two of one class (FedUFO).

    Classes of different size give shards of different size. The shards must go out evenly: classes times
    shards_per_class equals clients times shards_per_client, unless `leave_unused`.
    """
    classes = dataset.num_classes
    shards, wanted = classes * shards_per_class, clients * shards_per_client
    if wanted > shards or (wanted < shards and not leave_unused):
        even = f"set shards_per_class = {wanted // classes}" if wanted % classes == 0 else "change clients"
        rest = "" if wanted > shards else ", or leave_unused = true to leave the others out"
        raise ConfigError(
            f"{classes} classes of {shards_per_class} shards are {shards} shards, but {clients} clients of "
            f"{shards_per_client} take {wanted}; {even} or shards_per_client so that they fit{rest}"
        )
    labels = labels_of(dataset.train, classes)
    by_class = shuffled_within(Groups.by_id(labels, classes), rng)
    small = int(np.argmin(by_class.sizes))
    if by_class.sizes[small] < shards_per_class:
        raise DataError(
            f"class {small} has {by_class.sizes[small]} samples and cannot be cut into {shards_per_class} "
            "shards; use more data or a smaller shards_per_class"
        )
    sizes = np.repeat(by_class.sizes, by_class.sizes)
    shard = labels[by_class.order] * shards_per_class + rank_within(by_class.sizes) * shards_per_class // sizes
    owner = np.empty(len(labels), dtype=np.int64)
    owner[by_class.order] = hand_out(shards, clients, shards_per_client, rng)[shard]
    return by_owner(owner, clients)


@partition("sorted_shards")
def sorted_shards(
    dataset: Dataset,
    clients: int,
    rng: np.random.Generator,
    *,
    shards_per_client: Annotated[int, AtLeast(1), "random pieces a client gets"] = 2,
) -> Groups:
    """All samples sorted by label, cut into equal shards, a few random ones per client (McMahan et al. 2017).

    Samples of one label stay in the order of the data set. 60,000 samples, 100 clients: 200 shards of 300.
    """
    labels = labels_of(dataset.train, dataset.num_classes)
    shards = clients * shards_per_client
    if shards > len(labels):
        raise ConfigError(
            f"{clients} clients of {shards_per_client} shards need {shards} shards, but there are "
            f"{len(labels)} samples; ask for at most {len(labels) // shards_per_client} clients"
        )
    owner = np.empty(len(labels), dtype=np.int64)
    shard = np.arange(len(labels)) * shards // len(labels)
    owner[np.argsort(labels, kind="stable")] = hand_out(shards, clients, shards_per_client, rng)[shard]
    return by_owner(owner, clients)


@partition("label_split")
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


def class_groups(classes: int, parts: int) -> Index:
    """[C] the part of each class when neighbouring classes stay together: 7 in 2 parts are 0-3 and 4-6."""
    return np.arange(classes, dtype=np.int64) * parts // classes
