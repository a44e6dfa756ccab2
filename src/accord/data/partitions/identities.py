"""Partition by identity: whole people, vehicles or species to a client, as far as they go."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from accord.data.checks import labels_of
from accord.data.dealing import by_owner, rank_within, shuffled_within
from accord.data.federated import Dataset, Groups
from accord.data.partitions.registry import partition
from accord.errors import ConfigError
from accord.settings import AtLeast


@partition("identities", by_class=True)
def identities(
    dataset: Dataset,
    clients: int,
    rng: np.random.Generator,
    *,
    pieces: Annotated[int, AtLeast(1), "pieces the samples of an identity are cut into"] = 1,
) -> Groups:
    """Identities (classes) that have training samples, cut at random into pieces and dealt in random order in turn.

    So clients have as many pieces as one another, to within one. Identities of the search alone are dealt to nobody.
    """
    labels = labels_of(dataset.train, dataset.num_classes)
    held = np.unique(labels)
    if len(held) * pieces < clients:
        least = -(-clients // len(held))
        raise ConfigError(
            f"{len(held)} identities in {pieces} pieces are too few for {clients} clients; set pieces = {least}, or "
            "use fewer clients"
        )
    by_class = shuffled_within(Groups.by_id(labels, dataset.num_classes), rng)
    sizes = np.repeat(by_class.sizes, by_class.sizes)
    position = np.searchsorted(held, labels[by_class.order])
    piece = position * pieces + rank_within(by_class.sizes) * pieces // sizes
    turn = rng.permutation(len(held) * pieces) % clients
    owner = np.empty(len(labels), dtype=np.int64)
    owner[by_class.order] = turn[piece]
    return by_owner(owner, clients)
