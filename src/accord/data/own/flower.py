"""Flower's partitioners as client ids, one per sample.

    partitioner.dataset = hub["train"]
    dataset = from_huggingface(hub["train"], clients=from_flwr_partitioner(partitioner), test=hub["test"])

The package is not imported here: anything with the same few methods will do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from accord.data.federated import Index
from accord.data.own.huggingface import column_values
from accord.errors import DataError

POSITION = "accord_position"


def from_flwr_partitioner(partitioner: Any, *, allow_missing: bool = False) -> Index:
    """The client of each sample, from any `flwr_datasets` partitioner whose `dataset` is set.

    All partitions are loaded once, with a column of positions added to find out where each row came from.
    Samples in no partition are an error or, if `allow_missing`, get -1: leave them out before going on.
    """
    try:
        dataset = partitioner.dataset
    except AttributeError as error:
        raise DataError(
            "the partitioner has no data set yet; assign one first: partitioner.dataset = dataset"
        ) from error
    if not hasattr(partitioner, "_dataset"):
        raise DataError(
            f"{type(partitioner).__name__} does not keep its data set as flwr_datasets' partitioners do; "
            "derive it from flwr_datasets.partitioner.Partitioner"
        )
    ids = np.full(len(dataset), -1, dtype=np.int64)
    # Flower lets the data set be assigned only once, hence the private name. Partitions are lists of
    # positions, so what the partitioner remembers of them holds for its own data set as well.
    partitioner._dataset = dataset.add_column(POSITION, np.arange(len(dataset)))
    try:
        for client in range(int(partitioner.num_partitions)):
            partition = partitioner.load_partition(client)
            if POSITION not in partition.column_names:
                raise DataError(
                    f"{type(partitioner).__name__} divides columns, not samples; only partitioners that give "
                    "each client its own samples can be used"
                )
            rows = np.asarray(column_values(partition, POSITION), dtype=np.int64)
            if (ids[rows] != -1).any() or len(np.unique(rows)) != len(rows):
                raise DataError(f"partition {client} holds samples that were given out before")
            ids[rows] = client
    finally:
        partitioner._dataset = dataset
    missing = np.flatnonzero(ids == -1)
    if len(missing) and not allow_missing:
        raise DataError(
            f"{len(missing)} of {len(ids)} samples are in no partition, first {missing[0]}; with "
            "allow_missing=True they get the id -1: select the rows whose id is not negative"
        )
    return ids
