"""How different the clients are, in numbers: sizes, label counts, distances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accord.data.checks import labels_of
from accord.data.dealing import owners
from accord.data.federated import FederatedData, Index, Split

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Description:
    """Statistics of one split over K clients and C classes; clients without samples count in sizes only."""

    name: str
    split: Split
    counts: Index  # [K, C] samples of each class at each client
    clients: tuple[str, ...] = ()  # names, where there are any
    classes: tuple[str, ...] = ()

    def name_of(self, client: int) -> str:
        """The client's name; where clients have none, its number."""
        return self.clients[client] if self.clients else str(client)

    @property
    def sizes(self) -> Index:
        """[K] samples per client."""
        return np.asarray(self.counts.sum(axis=1), dtype=np.int64)

    @property
    def shares(self) -> Floats:
        """[K, C] label distribution of each client; NaN for a client without samples."""
        sizes = self.sizes[:, None]
        shares: Floats = np.full(self.counts.shape, np.nan)
        np.divide(self.counts, sizes, out=shares, where=sizes > 0)
        return shares

    @property
    def distance(self) -> Floats:
        """[K] label distance to the whole federation: sum over classes of |p_k(c) - p(c)|, from 0 to 2.

        This is what Zhao et al. 2018 ("Federated Learning with Non-IID Data") call the earth mover's
        distance; it treats all pairs of different classes as equally far apart, p being the labels of all
        clients together. NaN if empty.
        """
        total = max(int(self.counts.sum()), 1)
        return np.asarray(np.abs(self.shares - self.counts.sum(axis=0) / total).sum(axis=1), dtype=np.float64)

    @property
    def mean_distance(self) -> float:
        """Plain mean of `distance` over clients with samples."""
        return mean_of(self.distance)

    @property
    def effective_classes(self) -> Floats:
        """[K] exp(entropy of the labels), n for n equally frequent classes; NaN without samples."""
        shares = self.shares
        logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
        return np.asarray(np.exp(-(shares * logs).sum(axis=1)), dtype=np.float64)

    def summary(self) -> dict[str, float]:
        """The numbers to print: clients, samples, sizes, mean distance and mean effective classes."""
        sizes = self.sizes
        return {
            "clients": len(sizes),
            "samples": int(sizes.sum()),
            "smallest": int(sizes.min(initial=int(sizes.max(initial=0)))),
            "median": float(np.median(sizes)) if len(sizes) else 0.0,
            "largest": int(sizes.max(initial=0)),
            "mean_distance": self.mean_distance,
            "mean_effective_classes": mean_of(self.effective_classes),
        }


def mean_of(values: Floats) -> float:
    """Mean of the values that are not NaN, NaN when there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def describe(data: FederatedData, split: Split = "train") -> Description:
    """Count the labels of every client in one split; where samples have no class, only the samples."""
    groups = {"train": data.train, "validation": data.validation, "test": data.test}[split]
    from_test = split == "test" and data.test_from == "test"
    if data.problem != "classification":
        return Description(data.name, split, groups.sizes[:, None], data.names)
    labels = labels_of(data.test_pool if from_test else data.train_pool, data.num_classes, split)
    cells = owners(groups) * data.num_classes + labels[groups.order]
    counts = np.bincount(cells, minlength=len(groups) * data.num_classes)
    return Description(
        data.name, split, counts.reshape(len(groups), data.num_classes).astype(np.int64), data.names, data.classes
    )
