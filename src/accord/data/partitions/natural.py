"""The partition the data set brings along."""

from __future__ import annotations

import numpy as np

from accord.data.checks import check_ids
from accord.data.federated import Dataset, Groups
from accord.data.partitions.registry import partition
from accord.errors import ConfigError


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
    if dataset.client_names and clients != len(dataset.client_names):
        raise ConfigError(
            f"data set {dataset.name!r} names {len(dataset.client_names)} clients: leave their number open, or set "
            f"clients = {len(dataset.client_names)}, not {clients}"
        )
    return Groups.by_id(ids, clients)
