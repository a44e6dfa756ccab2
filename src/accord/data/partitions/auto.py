"""The partition of those who name none."""

from __future__ import annotations

import numpy as np

from accord.data.federated import Dataset, Groups
from accord.data.partitions.dirichlet import dirichlet
from accord.data.partitions.natural import natural
from accord.data.partitions.registry import partition


@partition("auto", may_be_empty=True)
def auto(dataset: Dataset, clients: int, rng: np.random.Generator) -> Groups:
    """`natural` where the data names the client of each sample, else `dirichlet` as it is."""
    return (dirichlet if dataset.train_clients is None else natural)(dataset, clients, rng)
