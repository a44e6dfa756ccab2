"""Runs that leave a model: byte images of three classes at four sites with names, and their raw test samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

import accord
from accord.data.federated import Dataset, FederatedData

SITES = ("Bern", "Lyon", "Turin", "St. Gallen/2")
CLASSES = ("cat", "dog", "owl")
SMALL = (
    *("rounds=2", "partition.name=natural", "partition.clients=4", "partition.test=natural", "clients.fraction=1.0"),
    *("executor=sequential", "local.batch_size=8", "targets=[]"),
)
PERCEPTRON = ("model.name=mlp", "model.hidden=[6]")


def drawn(count: int, seed: int) -> tuple[Any, Any, Any]:
    """Images whose brightness tells the class, labels, and a site for each."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, count)
    x = np.clip(rng.normal(60 + 60 * y[:, None, None, None], 40, (count, 1, 8, 8)), 0, 255).astype(np.uint8)
    return x, y, np.array(SITES)[np.arange(count) % 4]


TRAIN, TEST = drawn(60, 0), drawn(40, 1)


def pictures() -> Dataset:
    return accord.from_arrays(*TRAIN, test=TEST, classes=CLASSES, name="pets", normalise=True)


def finished(
    out: Path, *sets: str, model: nn.Module | None = None, data: Dataset | FederatedData | None = None
) -> accord.Outcome:
    """A run that has come to its end: of a small perceptron, unless the settings name another network."""
    network = () if any(text.startswith("model.name") for text in sets) else PERCEPTRON
    config = accord.load_config(None, [*SMALL, *network, f"out={out}", *sets])
    return accord.run(config, data=data or pictures(), model=model)


def share_right(model: accord.Loaded, site: str | None = None) -> float:
    """Of the raw test samples, all of them or a site's, by the names of the classes."""
    x, y, sites = TEST
    rows = np.ones(len(y), dtype=bool) if site is None else sites == site
    wanted = [CLASSES[c] for c in y[rows]]
    return float(np.mean([a == b for a, b in zip(model.predict(x[rows]), wanted, strict=True)]))
