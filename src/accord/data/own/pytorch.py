"""Data sets from any PyTorch data set of `(x, y)` pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from accord.data.federated import Dataset
from accord.data.own.arrays import from_arrays
from accord.data.own.samples import stacked
from accord.errors import DataError


def from_torch(
    train: Iterable[Any] | torch.utils.data.Dataset[Any],
    test: Iterable[Any] | torch.utils.data.Dataset[Any] | None = None,
    clients: Any = None,
    test_clients: Any = None,
    classes: int | Sequence[str] | None = None,
    name: str = "own",
    *,
    normalise: bool = False,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A data set from PyTorch data sets of `(x, y)` pairs, each read once into memory; see `from_arrays`.

    Inputs may be tensors, arrays or PIL images. They are read once, so random transforms would be frozen:
    leave them out. Class names that are not given come from the attribute `classes`, where there is one.
    """
    if test is None and test_clients is not None:
        raise DataError("test_clients was given without test; give the test data set too")
    if classes is None:
        names = getattr(train, "classes", None)
        classes = list(names) if isinstance(names, list | tuple) and names else None
    x, y = _pairs(train, "train")
    other = None if test is None else (*_pairs(test, "test"), test_clients)
    return from_arrays(x, y, clients, other, classes, name, normalise=normalise, test_fraction=test_fraction, seed=seed)


def _pairs(dataset: Any, what: str) -> tuple[Any, Any]:
    if isinstance(dataset, DataLoader):
        raise DataError(f"{what} is a DataLoader; give the data set itself: loader.dataset")
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        return dataset.tensors[0], dataset.tensors[1]
    # by index where possible: many data sets answer any index and would never end an iteration
    sized = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    samples, targets = [], []
    for place, item in enumerate((dataset[i] for i in range(len(dataset))) if sized else iter(dataset)):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"{what}: sample {place} is a {type(item).__name__}, expected a pair (x, y)")
        samples.append(item[0])
        targets.append(item[1])
    return stacked(samples, what), stacked(targets, f"{what} labels")
