"""Checks made before any work: labels against the class list, ids against the samples."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from accord.data.federated import Dataset, Index, Pool
from accord.errors import ConfigError, DataError
from accord.problems import PROBLEMS


def is_finite_number(value: object) -> bool:
    """Whether `value` is a number that is neither infinite nor NaN; True and False are not numbers here."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    return math.isfinite(value)


def labels_of(pool: Pool, num_classes: int, part: str = "train") -> Index:
    """The labels of a pool as a NumPy array, every one of them a class number."""
    if pool.y.dim() != 1 or len(pool.x) != len(pool.y):
        raise DataError(
            f"the {part} part needs one label per sample; got inputs of shape {tuple(pool.x.shape)} "
            f"and labels of shape {tuple(pool.y.shape)}"
        )
    if pool.y.dtype.is_floating_point or pool.y.dtype.is_complex:
        raise DataError(f"labels of the {part} part must be whole numbers, not {pool.y.dtype}")
    labels = pool.y.detach().cpu().numpy().astype(np.int64)
    if len(labels) and (labels.min() < 0 or labels.max() >= num_classes):
        bad = np.flatnonzero((labels < 0) | (labels >= num_classes))
        raise DataError(
            f"{len(bad)} labels of the {part} part are not class numbers, the first is {labels[bad[0]]} at "
            f"position {bad[0]}; {num_classes} classes allow 0 to {num_classes - 1}. Renumber from 0"
        )
    return labels


def check_dataset(dataset: Dataset) -> None:
    """Refuse a data set that cannot be partitioned."""
    if not isinstance(dataset, Dataset):
        raise ConfigError(
            f"data must be a data set, not a {type(dataset).__name__}: make one of your arrays with "
            "accord.from_arrays(x, y), or use from_table, from_torch or from_huggingface"
        )
    if dataset.num_classes < 1:
        raise DataError(f"data set {dataset.name!r} lists no classes")
    if not len(dataset.train):
        raise DataError(f"data set {dataset.name!r} has no training samples")
    check_labels(dataset, "train")


def check_labels(dataset: Dataset, part: Literal["train", "test"]) -> None:
    """One label for every sample, of the kind the data set says."""
    pool = dataset.train if part == "train" else dataset.test
    if dataset.problem == "classification":
        labels_of(pool, dataset.num_classes, part)
        return
    if len(pool.x) != len(pool.y):
        raise DataError(f"the {part} part has {len(pool.x)} samples and {len(pool.y)} labels; they must be as many")
    PROBLEMS[dataset.problem].check(pool.y, dataset.num_classes, part)


def check_clients(clients: object, least: int = 1) -> int:
    """The number of clients, a whole number of at least one."""
    if isinstance(clients, bool) or not isinstance(clients, int | np.integer) or clients < least:
        raise ConfigError(f"clients must be a whole number of at least {least}, not {clients!r}")
    return int(clients)


def check_ids(ids: Index | None, pool: Pool, what: str) -> Index:
    """Per-sample ids (domains, natural clients): there, one for each sample, none negative."""
    if ids is None:
        raise DataError(f"this data set has no {what}; choose a partition that needs only labels")
    ids = np.asarray(ids)
    if ids.shape != (len(pool),) or not np.issubdtype(ids.dtype, np.integer) or (len(ids) and ids.min() < 0):
        raise DataError(
            f"{what} must be one whole number of at least 0 for each of the {len(pool)} samples; "
            f"got shape {ids.shape}, type {ids.dtype}"
        )
    return ids.astype(np.int64)
