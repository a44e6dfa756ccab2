"""Hugging Face data sets as a `Dataset`, and Flower's partitioners as client ids.

    partitioner.dataset = hub["train"]
    dataset = from_huggingface(hub["train"], clients=from_flwr_partitioner(partitioner), test=hub["test"])

Neither package is imported here: anything with the same few methods will do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accord.data.arrays import as_array
from accord.data.federated import Dataset, Index
from accord.data.own import from_arrays, stacked
from accord.errors import DataError, nearest

FEATURES = ("image", "img", "x", "features")
LABELS = ("label", "labels", "y")
POSITION = "accord_position"


def from_huggingface(
    dataset: Any,
    feature: str | None = None,
    label: str | None = None,
    client: str | None = None,
    test: Any = None,
    name: str = "own",
    *,
    clients: Any = None,
    test_clients: Any = None,
    classes: int | Sequence[str] | None = None,
    normalise: bool = False,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A data set from a `datasets.Dataset`, or from a `DatasetDict` with `train` and perhaps `test`.

    Columns: `feature` (guessed: image, img, x, features), `label` (guessed: label, labels, y) and, if samples
    belong to clients, `client`; or give the ids in `clients` (and `test_clients`), as `from_flwr_partitioner`
    returns them. Class names come from the label column if it has any. The rest is as in `from_arrays`.
    """
    if isinstance(dataset, Mapping):
        if "train" not in dataset:
            raise DataError(f"the data set has the parts {', '.join(dataset)}; expected train, or give one part")
        test = dataset.get("test") if test is None else test
        dataset = dataset["train"]
    if client is not None and clients is not None:
        raise DataError("give client, a column, or clients, the ids themselves, but not both")
    feature = _column(dataset, feature, FEATURES, "feature")
    label = _column(dataset, label, LABELS, "label")
    if client is not None:
        client = _column(dataset, client, (), "client")
        clients = _values(dataset, client)
        if test is not None and client in test.column_names:
            test_clients = _values(test, client)
    if classes is None:
        found = getattr((getattr(dataset, "features", None) or {}).get(label), "names", None)
        classes = list(found) if found else None
    other = None
    if test is not None:
        for column in (feature, label):
            _column(test, column, (), "test")
        other = (_inputs(test, feature, "test"), _labels(test, label, "test"), test_clients)
    return from_arrays(
        _inputs(dataset, feature, "train"),
        _labels(dataset, label, "train"),
        clients,
        other,
        classes,
        name,
        normalise=normalise,
        test_fraction=test_fraction,
        seed=seed,
    )


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
            rows = np.asarray(_values(partition, POSITION), dtype=np.int64)
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


def _column(dataset: Any, given: str | None, guesses: Sequence[str], kind: str) -> str:
    columns = getattr(dataset, "column_names", None)
    if not isinstance(columns, list | tuple) or not hasattr(dataset, "__len__"):
        raise DataError(
            f"expected a Hugging Face datasets.Dataset, got {type(dataset).__name__}; a streamed one must "
            "be loaded without streaming"
        )
    if given is not None:
        if given not in columns:
            raise DataError(
                f"there is no {kind} column {given!r}.{nearest(given, columns)} Columns: {', '.join(columns)}"
            )
        return given
    found = [guess for guess in guesses if guess in columns]
    if len(found) != 1:
        raise DataError(
            f"cannot tell the {kind} column among {', '.join(columns)}; give {kind}='...' (looked for "
            f"{', '.join(guesses)})"
        )
    return found[0]


def _values(dataset: Any, column: str) -> Any:
    return dataset[column][:]  # the slice turns newer versions' lazy columns into lists


def _inputs(dataset: Any, column: str, what: str) -> Any:
    return stacked([row[column] for row in _only(dataset, column)], f"{what} column {column!r}")


def _labels(dataset: Any, column: str, what: str) -> Any:
    return as_array(_values(dataset, column), f"{what} column {column!r}")


def _only(dataset: Any, column: str) -> Any:
    """The data set with one column, so that iterating does not decode the others."""
    return dataset.select_columns([column]) if hasattr(dataset, "select_columns") else dataset
