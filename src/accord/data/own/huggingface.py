"""Data sets from Hugging Face's `datasets`, which is not imported here: anything with the same few methods will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accord.data.federated import Dataset
from accord.data.own.arrays import from_arrays
from accord.data.own.conversion import as_array
from accord.data.own.samples import stacked
from accord.errors import DataError, nearest

FEATURES = ("image", "img", "x", "features")
LABELS = ("label", "labels", "y")


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
    task: str = "auto",
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
    if test is None and test_clients is not None:
        raise DataError("test_clients was given without test; give the test data set too")
    feature = _column(dataset, feature, FEATURES, "feature")
    label = _column(dataset, label, LABELS, "label")
    if client is not None:
        client = _column(dataset, client, (), "client")
        clients = _ids(dataset, client)
        if test is not None and client in test.column_names:
            test_clients = _ids(test, client)
    classes = _known_names(dataset, label) if classes is None else classes
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
        task=task,
        normalise=normalise,
        test_fraction=test_fraction,
        seed=seed,
    )


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
    matches = [guess for guess in guesses if guess in columns]
    if len(matches) != 1:
        raise DataError(
            f"cannot tell the {kind} column among {', '.join(columns)}; give {kind}='...' (looked for "
            f"{', '.join(guesses)})"
        )
    return matches[0]


def _known_names(dataset: Any, column: str) -> list[str] | None:
    """What the numbers of a column stand for, where the data set knows."""
    names = getattr((getattr(dataset, "features", None) or {}).get(column), "names", None)
    return list(names) if names else None


def _ids(dataset: Any, column: str) -> Any:
    """Client ids; numbers that stand for names become these."""
    names, values = _known_names(dataset, column), column_values(dataset, column)
    return values if names is None else [names[value] for value in values]


def column_values(dataset: Any, column: str) -> Any:
    """All values of one column."""
    return dataset[column][:]  # the slice turns newer versions' lazy columns into lists


def _inputs(dataset: Any, column: str, what: str) -> Any:
    return stacked([row[column] for row in _only(dataset, column)], f"{what} column {column!r}")


def _labels(dataset: Any, column: str, what: str) -> Any:
    return as_array(column_values(dataset, column), f"{what} column {column!r}")


def _only(dataset: Any, column: str) -> Any:
    """The data set with one column, so that iterating does not decode the others."""
    return dataset.select_columns([column]) if hasattr(dataset, "select_columns") else dataset
