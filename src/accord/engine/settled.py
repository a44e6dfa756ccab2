"""What a configuration leaves open, settled by the data: who the clients are, how many, what they are tested on.

A run is made with the settled configuration, and its folder says it: `partition.name = "natural"` and the number of
clients where the data names them, and that its data was given where it was.
"""

from __future__ import annotations

from dataclasses import replace

from accord.config import RunConfig
from accord.data.division import arrangement
from accord.data.federated import Dataset, FederatedData
from accord.data.own.given import GIVEN


def settled(config: RunConfig, dataset: Dataset | FederatedData | None = None) -> RunConfig:
    """The configuration with nothing left open; data that came divided leaves nothing to settle but where it is from.

    Without a data set it is settled for data that names no clients.
    """
    if isinstance(dataset, FederatedData):
        return config
    part = config.partition
    if part.name != "auto" and part.clients and part.test != "auto":
        return config
    found = arrangement(dataset, part.name, part.clients, part.test)
    return replace(config, partition=replace(part, name=found.partition, clients=found.clients, test=found.test))


def handed_over(config: RunConfig) -> RunConfig:
    """The configuration of a run whose data is given to it, and not what `data.name` says."""
    return replace(config, data=replace(config.data, name=GIVEN, options={}))
