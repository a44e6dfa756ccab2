"""A run site by site: what each client holds, and how well the models do there.

Columns, since a federation may have a million clients: `site` (its name, or its number), `client` (its number),
`samples`, `test_samples`, what the labels are, then a column for everything that was measured at the clients. Of labels
it is told as `class` and `class_share` which share of the training samples has the class: of two the second one, of
more, or of several labels per sample, the client's most frequent one; of numbers it is `label_mean`. None: no value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from accord.data.dealing import owners
from accord.data.federated import FederatedData, Index
from accord.measures.predictions import Vector
from accord.problems import PROBLEMS

Record = dict[str, Any]
WORDS, COUNTS = ("site", "class"), ("client", "samples", "test_samples")  # the other columns hold numbers or None


@dataclass(frozen=True)
class Sites:
    """Columns of equal length, a place for each client."""

    columns: Mapping[str, list[Any]]

    def __len__(self) -> int:
        return len(self.columns["site"])

    def row(self, position: int) -> Record:
        """One site."""
        return {name: column[position] for name, column in self.columns.items()}

    def rows(self) -> list[Record]:
        """All of them."""
        return [self.row(position) for position in range(len(self))]


def sites_of(data: FederatedData, values: Mapping[str, Vector], labels: Mapping[str, list[Any]] | None = None) -> Sites:
    """What the clients hold, and `values` of them, the leading numbers first.

    `labels` is what the clients told of theirs, where the samples are not here.
    """
    headline = PROBLEMS[data.problem].headline
    first = (headline, f"personal_{headline}", f"personal_{headline}_before")
    return Sites(
        {
            "site": [data.name_of(client) for client in range(len(data))],
            "client": list(range(len(data))),
            "samples": data.train.sizes.tolist(),
            "test_samples": data.test.sizes.tolist(),
            **(label_columns(data) if labels is None else labels),
            **{name: _or_none(values[name]) for name in [*first, *values] if name in values},
        }
    )


def label_columns(data: FederatedData) -> dict[str, list[Any]]:
    """What is told of the clients' training labels."""
    y, told = data.train_pool.y.cpu().numpy(), data.problem
    if PROBLEMS[told].real_labels:
        means = _sums(data, y.reshape(len(y), -1).mean(axis=1)) / np.maximum(data.sizes, 1)
        return {"class": [""] * len(data), "label_mean": _or_none(np.where(data.sizes > 0, means, np.nan))}
    if told == "multilabel":
        counts = np.stack([_sums(data, (label > 0).astype(np.float64)) for label in y.T], axis=1)
        return _shares(data, counts.argmax(axis=1), counts.max(axis=1))
    if told == "classification" and data.num_classes == 2:
        return _shares(data, np.ones(len(data), dtype=np.int64), _sums(data, (y == 1).astype(np.float64)))
    if told == "classification":
        return _shares(data, *_most_frequent(data, y))
    return {"class": [""] * len(data)}


def _sums(data: FederatedData, values: Vector) -> Vector:
    """[K] over each client's training samples, of a value per sample of the pool."""
    sums = np.bincount(owners(data.train), weights=values[data.train.order], minlength=len(data))
    return np.asarray(sums, dtype=np.float64)


def _most_frequent(data: FederatedData, y: Index) -> tuple[Index, Vector]:
    """[K] each client's most frequent class, of equals the first, and how often it has it.

    Only classes that clients hold are counted: a table of a million clients and a thousand classes would be 8 GB.
    """
    cells, frequency = np.unique(owners(data.train) * data.num_classes + y[data.train.order], return_counts=True)
    order = np.lexsort((-cells, frequency))  # what is written last stays: the most frequent, and of equals the first
    label, count = np.zeros(len(data), dtype=np.int64), np.zeros(len(data))
    label[cells[order] // data.num_classes] = cells[order] % data.num_classes
    count[cells[order] // data.num_classes] = frequency[order]
    return label, count


def _shares(data: FederatedData, label: Index, count: Vector) -> dict[str, list[Any]]:
    """The classes by name, and their shares of the clients' samples."""
    names = data.classes if len(data.classes) == data.num_classes else [str(c) for c in range(data.num_classes)]
    known = data.sizes > 0
    return {
        "class": [names[c] if has else "" for c, has in zip(label.tolist(), known.tolist(), strict=True)],
        "class_share": _or_none(np.where(known, count / np.maximum(data.sizes, 1), np.nan)),
    }


def _or_none(column: Vector) -> list[float | None]:
    return [None if value != value else value for value in column.tolist()]
