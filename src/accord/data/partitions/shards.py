"""Partitions by shards: equal pieces of a class, or of all samples sorted by label."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from accord.data.checks import labels_of
from accord.data.dealing import by_owner, rank_within, shuffled_within
from accord.data.federated import Dataset, Groups, Index
from accord.data.partitions.registry import partition
from accord.errors import ConfigError, DataError
from accord.settings import AtLeast


@partition("class_shards", by_class=True)
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


@partition("sorted_shards", by_class=True)
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


def hand_out(shards: int, clients: int, each: int, rng: np.random.Generator) -> Index:
    """[shards] the client that gets each shard, `each` random ones per client; -1 for shards left over."""
    client = np.full(shards, -1, dtype=np.int64)
    client[rng.permutation(shards)[: clients * each]] = np.repeat(np.arange(clients), each)
    return client
