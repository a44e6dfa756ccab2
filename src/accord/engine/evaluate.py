"""How good the global model is: on the test pool, and for each client on its own test data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from accord.core.algorithm import Predictor
from accord.data.federated import FederatedData, Groups, Index, Pool
from accord.metrics import mean_average_precision, spread

Record = dict[str, Any]
Vector = np.ndarray[Any, np.dtype[np.float64]]


def batches(pool: Pool, index: Index, size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Samples of a pool, `size` at a time."""
    for start in range(0, len(index), size):
        x, y = pool.take(index[start : start + size])
        yield x.to(device), y.to(device)


def scores(
    predictor: Predictor,
    pool: Pool,
    index: Index,
    size: int,
    device: torch.device,
    change: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Vector, Vector]:
    """[n] whether each sample was classified right, and its loss."""
    right, losses = [], []
    with torch.no_grad():
        for x, y in batches(pool, index, size, device):
            logits = predictor(x if change is None else change(x)).logits
            right.append((logits.argmax(1) == y).double())
            losses.append(F.cross_entropy(logits, y, reduction="none").double())
    if not right:
        return np.zeros(0), np.zeros(0)
    return torch.cat(right).cpu().numpy(), torch.cat(losses).cpu().numpy()


def evaluate_global(predictor: Predictor, data: FederatedData, size: int, device: torch.device) -> Record:
    """Accuracy and loss on the test pool, the mean over its environments."""
    everything = np.arange(len(data.test_pool))
    found = [scores(predictor, data.test_pool, everything, size, device, e.change) for e in data.environments]
    record: Record = {
        "accuracy": float(np.mean([right.mean() for right, _ in found])),
        "test_loss": float(np.mean([loss.mean() for _, loss in found])),
    }
    if len(found) > 1:
        names = [environment.name for environment in data.environments]
        record["environments"] = {n: float(right.mean()) for n, (right, _) in zip(names, found, strict=True)}
    return record


def client_accuracies(predictor: Predictor, data: FederatedData, split: str, size: int, device: torch.device) -> Vector:
    """[K] accuracy of the global model on each client's own data; NaN where a client has none."""
    groups = data.test if split == "test" else data.validation
    pool = data.test_pool if split == "test" and data.test_from == "test" else data.train_pool
    if data.transform is not None:
        return _one_by_one(predictor, data, split, size, device)
    # Without client transforms a sample's score does not depend on who holds it: score every sample once.
    positions, inverse = np.unique(groups.order, return_inverse=True)
    right = scores(predictor, pool, positions, size, device)[0][inverse]
    return group_means(right, groups)


def group_means(values: Vector, groups: Groups) -> Vector:
    """[K] mean of each client's values, which lie one after the other; NaN for a client without any."""
    sums = np.diff(np.concatenate([[0.0], np.cumsum(values)])[groups.offsets])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(groups.sizes > 0, sums / groups.sizes, np.nan)


def _one_by_one(predictor: Predictor, data: FederatedData, split: str, size: int, device: torch.device) -> Vector:
    found = np.full(len(data), np.nan)
    with torch.no_grad():
        for client in range(len(data)):
            x, y = data.client(client, "test" if split == "test" else "validation")
            if len(y):
                hits = [
                    (predictor(x[i : i + size].to(device)).logits.argmax(1) == y[i : i + size].to(device)).sum()
                    for i in range(0, len(y), size)
                ]
                found[client] = float(torch.stack(hits).sum()) / len(y)
    return found


def retrieval(predictor: Predictor, data: FederatedData, size: int, device: torch.device) -> float:
    """Mean average precision of the test pool against itself, features L2-normalised."""
    with torch.no_grad():
        found = [(predictor(x).features.cpu(), y.cpu()) for x, y in _all_test(data, size, device)]
    features, labels = (torch.cat(column) for column in zip(*found, strict=True))
    return mean_average_precision(features, labels).mean_average_precision


def _all_test(data: FederatedData, size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    return batches(data.test_pool, np.arange(len(data.test_pool)), size, device)


def client_record(accuracies: Vector, sizes: Index | None = None) -> Record:
    """best, worst, mean, std, deciles and the size-weighted mean over clients, in types JSON keeps."""
    found = asdict(spread(accuracies, sizes))
    return {**found, "deciles": list(found["deciles"])}
