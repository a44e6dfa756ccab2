"""How good the global model is: on the test pool, and for each client on its own test data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from accord.core.algorithm import Predictor
from accord.core.keys import Key
from accord.data.federated import FederatedData, Groups, Index, Pool
from accord.metrics import mean_average_precision, spread

Record = dict[str, Any]
Held = Literal["test", "validation"]
Vector = np.ndarray[Any, np.dtype[np.float64]]


def batches(pool: Pool, index: Index, size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Samples of a pool, `size` at a time."""
    for start in range(0, len(index), size):
        x, y = pool.take(index[start : start + size])
        yield x.to(device), y.to(device)


def mixed(count: int) -> Index:
    """One fixed random order, for methods that judge samples together: data sets often lie sorted by class."""
    return Key(0).at("evaluate.mixed").permutation(count)


def scores(
    predictor: Predictor,
    pool: Pool,
    index: Index,
    size: int,
    device: torch.device,
    change: Callable[[Tensor], Tensor] | None = None,
    *,
    together: bool = False,
) -> tuple[Vector, Vector]:
    """[n] whether each sample was classified right, and its loss; `together` shows the samples in a mixed order."""
    order = mixed(len(index)) if together else np.arange(len(index))
    return _scores(predictor, batches(pool, index[order], size, device), order, change)


def _scores(
    predictor: Predictor,
    shown: Iterable[tuple[Tensor, Tensor]],
    order: Index,
    change: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Vector, Vector]:
    """Of the shown samples, each at its place in `order`."""
    right, losses = [], []
    with torch.no_grad():
        for x, y in shown:
            logits = predictor(x if change is None else change(x)).logits
            right.append((logits.argmax(1) == y).double())
            losses.append(F.cross_entropy(logits, y, reduction="none").double())
    if not right:
        return np.zeros(0), np.zeros(0)
    back = np.argsort(order)
    return torch.cat(right).cpu().numpy()[back], torch.cat(losses).cpu().numpy()[back]


def evaluate_global(
    predictor: Predictor, data: FederatedData, size: int, device: torch.device, *, together: bool = False
) -> Record:
    """Accuracy and loss on the test pool, the mean over its environments."""
    everything = np.arange(len(data.test_pool))
    found = [
        scores(predictor, data.test_pool, everything, size, device, e.change, together=together)
        for e in data.environments
    ]
    record: Record = {
        "accuracy": float(np.mean([right.mean() for right, _ in found])),
        "test_loss": float(np.mean([loss.mean() for _, loss in found])),
    }
    if len(found) > 1:
        names = [environment.name for environment in data.environments]
        record["environments"] = {n: float(right.mean()) for n, (right, _) in zip(names, found, strict=True)}
    return record


def client_accuracies(
    predictor: Predictor, data: FederatedData, split: Held, size: int, device: torch.device, *, together: bool = False
) -> Vector:
    """[K] accuracy of the global model on each client's own data; NaN where a client has none."""
    groups = data.test if split == "test" else data.validation
    pool = data.test_pool if split == "test" and data.test_from == "test" else data.train_pool
    if data.transform is not None and together:
        order = mixed(len(groups.order))
        return group_means(_scores(predictor, _transformed(data, split, order, size, device), order)[0], groups)
    if data.transform is not None:
        return _one_by_one(predictor, data, split, size, device)
    # Without client transforms a sample's score does not depend on who holds it: score every sample once.
    positions, inverse = np.unique(groups.order, return_inverse=True)
    right = scores(predictor, pool, positions, size, device, together=together)[0][inverse]
    return group_means(right, groups)


def group_means(values: Vector, groups: Groups) -> Vector:
    """[K] mean of each client's values, which lie one after the other; NaN for a client without any."""
    sums = np.diff(np.concatenate([[0.0], np.cumsum(values)])[groups.offsets])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(groups.sizes > 0, sums / groups.sizes, np.nan)


def _transformed(
    data: FederatedData, split: Held, order: Index, size: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Samples of all clients in that order, each as its client sees it."""
    assert data.transform is not None
    groups = data.test if split == "test" else data.validation
    pool = data.test_pool if split == "test" and data.test_from == "test" else data.train_pool
    owners = np.repeat(np.arange(len(groups)), groups.sizes)
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        index = groups.order[rows]
        x, y = pool.take(index)
        each = zip(owners[rows].tolist(), range(len(rows)), strict=True)
        own = [data.transform(client, index[i : i + 1], x[i : i + 1]) for client, i in each]
        yield torch.cat(own).to(device), y.to(device)


def _one_by_one(predictor: Predictor, data: FederatedData, split: Held, size: int, device: torch.device) -> Vector:
    found = np.full(len(data), np.nan)
    with torch.no_grad():
        for client in range(len(data)):
            x, y = data.client(client, split)
            if len(y):
                hits = [
                    (predictor(x[i : i + size].to(device)).logits.argmax(1) == y[i : i + size].to(device)).sum()
                    for i in range(0, len(y), size)
                ]
                found[client] = float(torch.stack(hits).sum()) / len(y)
    return found


def retrieval(
    predictor: Predictor, data: FederatedData, size: int, device: torch.device, *, together: bool = False
) -> float:
    """Mean average precision of the test pool against itself, features L2-normalised."""
    count = len(data.test_pool)
    order = mixed(count) if together else np.arange(count)
    with torch.no_grad():
        shown = batches(data.test_pool, order, size, device)
        found = [(predictor(x).features.cpu(), y.cpu()) for x, y in shown]
    features, labels = (torch.cat(column) for column in zip(*found, strict=True))
    return mean_average_precision(features, labels).mean_average_precision


def client_record(accuracies: Vector, sizes: Index | None = None) -> Record:
    """best, worst, mean, std, deciles and the size-weighted mean over clients, in types JSON keeps."""
    found = asdict(spread(accuracies, sizes))
    return {**found, "deciles": list(found["deciles"])}
