"""A run site by site: what each client holds, and how well the models do there.

Columns, since a federation may have a million clients: `site` (its name, or its number), `client` (its number),
`samples`, `test_samples`, `class` and `class_share` (of two classes the second one's share of the training samples, of
more the most frequent one's), then a column for everything that was measured at the clients. None: there is no value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from accord.data.dealing import owners
from accord.data.federated import FederatedData
from accord.measures.predictions import Vector

Record = dict[str, Any]
FIRST = ("accuracy", "personal_accuracy_before", "personal_accuracy")  # before other metrics
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


def sites_of(data: FederatedData, values: Mapping[str, Vector]) -> Sites:
    """What the clients hold, and `values` of them."""
    label, share = _classes(data)
    return Sites(
        {
            "site": [name_of(data, client) for client in range(len(data))],
            "client": list(range(len(data))),
            "samples": data.train.sizes.tolist(),
            "test_samples": data.test.sizes.tolist(),
            "class": label,
            "class_share": _or_none(share),
            **{name: _or_none(values[name]) for name in sorted(values, key=lambda name: name not in FIRST)},
        }
    )


def name_of(data: FederatedData, client: int) -> str:
    """What a client is called."""
    return data.names[client] if data.names else str(client)


def _classes(data: FederatedData) -> tuple[list[str], Vector]:
    """The class that is told of each client, and its share of the client's training samples; NaN without samples."""
    labels = data.train_pool.y.cpu().numpy()[data.train.order]
    sizes = np.maximum(data.train.sizes, 1)
    if data.num_classes == 2:
        told = np.ones(len(data), dtype=np.int64)
        counts = np.bincount(owners(data.train)[labels == 1], minlength=len(data))
    else:
        # Of the classes that clients hold, not of all: a million clients of a thousand classes would be 8 GB.
        cells, frequency = np.unique(owners(data.train) * data.num_classes + labels, return_counts=True)
        told, counts = np.zeros(len(data), dtype=np.int64), np.zeros(len(data), dtype=np.int64)
        order = np.lexsort((-cells, frequency))  # the most frequent last, and of equals the first class
        told[cells[order] // data.num_classes] = cells[order] % data.num_classes
        counts[cells[order] // data.num_classes] = frequency[order]
    known = data.train.sizes > 0
    names = data.classes if len(data.classes) == data.num_classes else [str(c) for c in range(data.num_classes)]
    labels_told = [names[c] if has else "" for c, has in zip(told.tolist(), known.tolist(), strict=True)]
    return labels_told, np.where(known, counts / sizes, np.nan)


def _or_none(column: Vector) -> list[float | None]:
    return [None if value != value else value for value in column.tolist()]
