"""A node's own data, as its owner's file names it: a table, images, arrays in a .npz file, or a named data set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from accord.core.types import ClientData
from accord.data.federated import Dataset, FederatedData, Groups, Pool
from accord.data.own.arrays import from_arrays
from accord.data.public.registry import DATASETS, load_dataset
from accord.errors import ConfigError, DataError
from accord.flower.facts import Form, SiteFacts
from accord.flower.owner import Owner
from accord.measures.sites import label_columns
from accord.problems import PROBLEMS

FILES = {".csv": "table", ".tsv": "table", ".parquet": "table", ".npz": "arrays"}
ARRAYS = ("x", "y", "test_x", "test_y", "classes")


def load_own(owner: Owner) -> Dataset:
    """The data set of this site alone."""
    given = dict(owner.data)
    task = str(given.pop("task", "auto"))
    path = given.get("path")
    place = None if path is None else owner.place / os.path.expanduser(str(path))
    if place is not None:
        if not place.exists():
            raise DataError(f"there is no file {place}, which [data] names")
        given["path"] = str(place)
    for file in ("test", "schema"):
        if isinstance(given.get(file), str):
            given[file] = str(owner.place / os.path.expanduser(given[file]))
    name = str(given.pop("name", "") or _kind(place))
    if name == "arrays":
        return _arrays(place, owner, task)
    if name not in DATASETS:
        raise ConfigError(f"data.name = {name!r}: unknown data set. Allowed: arrays, {', '.join(DATASETS)}")
    if name in ("table", "folder"):
        given.setdefault("test_fraction", owner.holdout)
    folder = given.pop("dir", None)
    return load_dataset(name, folder, task=task, **given)


def _kind(place: Path | None) -> str:
    if place is None:
        raise ConfigError("[data] names neither a path nor a data set by name")
    if place.is_dir():
        return "folder"
    if place.suffix.lower() not in FILES:
        raise ConfigError(f"{place}: data files are {', '.join(FILES)} or a folder of images; or set data.name")
    return FILES[place.suffix.lower()]


def _arrays(place: Path | None, owner: Owner, task: str) -> Dataset:
    if place is None:
        raise ConfigError("the data 'arrays' needs a path, of a .npz file with x and y")
    try:
        with np.load(place, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files if name in ARRAYS}
    except (OSError, ValueError) as error:
        raise DataError(f"{place} is no .npz file of plain arrays: {error}") from error
    if not {"x", "y"} <= found.keys():
        raise DataError(f"{place} holds {', '.join(found) or 'nothing'}; it must hold x and y")
    classes = found.get("classes")
    names = None if classes is None else int(classes) if classes.ndim == 0 else [str(word) for word in classes.tolist()]
    test = (found["test_x"], found["test_y"]) if {"test_x", "test_y"} <= found.keys() else None
    name = str(owner.data.get("called", place.stem))
    return from_arrays(found["x"], found["y"], None, test, names, name, task=task, test_fraction=owner.holdout)


def facts_of_own(dataset: Dataset, tells_labels: bool) -> SiteFacts:
    """What may be known of it elsewhere."""
    x, y = dataset.train.take(torch.arange(min(1, len(dataset.train))))
    whole = dataset.train.x.dtype == torch.int64 and dataset.fields is None
    pools = [pool for pool in (dataset.train, dataset.test) if len(pool)]
    return SiteFacts(
        len(dataset.train),
        len(dataset.test),
        Form.of(x),
        Form.of(y),
        dataset.problem,
        dataset.classes,
        max(int(pool.x.max()) + 1 for pool in pools) if whole else 0,
        dataset.fields,
        dataset.inputs,
        _labels(dataset) if tells_labels else {},
        dataset.name,
    )


def _labels(dataset: Dataset) -> dict[str, Any]:
    """Which class is the most frequent, and how frequent it is; of numbers, their mean."""
    everything, nothing = Groups.of([np.arange(len(dataset.train))]), Groups.of([[]])
    alone = FederatedData(
        dataset.name,
        dataset.train,
        dataset.train,
        dataset.num_classes,
        everything,
        nothing,
        nothing,
        classes=dataset.classes,
        problem=dataset.problem,
    )
    return {name: column[0] for name, column in label_columns(alone).items() if column[0] is not None}


def client_data(dataset: Dataset, device: torch.device) -> ClientData:
    """All of it as its client sees it."""
    x, y, test_x, test_y = (t.to(device) for pool in (dataset.train, dataset.test) for t in _whole(pool))
    return ClientData(x, y, test_x, test_y, dataset.num_classes)


def _whole(pool: Pool) -> tuple[torch.Tensor, torch.Tensor]:
    return pool.take(torch.arange(len(pool)))


def check_own(dataset: Dataset) -> None:
    """Finite inputs and labels of the task."""
    for name, pool in (("train", dataset.train), ("test", dataset.test)):
        if len(pool) and pool.x.is_floating_point() and not bool(torch.isfinite(pool.x).all()):
            raise DataError(f"the {name} samples hold NaN or infinity: remove them")
        if len(pool):
            PROBLEMS[dataset.problem].check(pool.y, dataset.num_classes, name)
    if not len(dataset.train):
        raise DataError("this site has no training samples")


def described(facts: Mapping[str, Any]) -> str:
    """One line for a log."""
    return f"{facts['samples']} training and {facts['test_samples']} test samples of {facts['data']}"
