"""The samples that are looked at closely: some clients, some of their samples, as rows of numbers.

A federation may be large. Labels and sizes of all clients are counted; what needs the inputs themselves is measured on
at most `CLIENTS` clients and `SAMPLES` samples, drawn by the seed, and it is said where that is not all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from accord.core.keys import Key
from accord.data.federated import FederatedData, Index
from accord.diagnosis.finding import called
from accord.problems.tokens import NO_LABEL

Floats = npt.NDArray[np.float64]
CLIENTS, SAMPLES = 40, 4000
BINS = 6  # of a number to be predicted, where something is asked given the label
FEWEST = 4  # samples of a client that say anything about its inputs


@dataclass(frozen=True)
class Gathered:
    """N samples of K clients."""

    x: Tensor  # [N, ...] as the clients see them
    y: Tensor
    client: Index  # [N] 0..K-1, the place in `chosen`
    chosen: tuple[int, ...]  # the clients, by their numbers in the federation
    names: tuple[str, ...]
    strata: Index  # [N] samples with the same label, as far as there are such
    stratified: bool  # whether strata are more than one
    whole: bool  # whether these are all clients and all samples
    problem: str

    def __len__(self) -> int:
        return len(self.client)

    @property
    def sizes(self) -> Index:
        """[K] samples that were gathered."""
        return np.bincount(self.client, minlength=len(self.chosen)).astype(np.int64)

    @property
    def remark(self) -> str:
        """What was looked at, where it is not everything."""
        return "" if self.whole else f" ({len(self):,} samples of {len(self.chosen)} clients were looked at.)"


def gathered(data: FederatedData, key: Key) -> Gathered:
    """Clients by chance, and of each as many samples as there is room for."""
    rng = key.at("diagnosis.sample")
    able = np.flatnonzero(data.sizes >= FEWEST)
    chosen = able if len(able) <= CLIENTS else np.sort(rng.choice(able, CLIENTS, replace=False))
    room = shared_out(data.sizes[chosen], SAMPLES)
    xs, ys, owner = [], [], []
    for place, (client, count) in enumerate(zip(chosen, room, strict=True)):
        index = data.train[int(client)]
        kept = index if count == len(index) else index[np.sort(rng.choice(len(index), count, replace=False))]
        x, y = data.train_pool.take(kept)
        xs.append((x if data.transform is None else data.transform(int(client), kept, x)).cpu())
        ys.append(y.cpu())
        owner.append(np.full(count, place, dtype=np.int64))
    x = torch.cat(xs) if xs else data.train_pool.take(np.zeros(0, np.int64))[0]
    y = torch.cat(ys) if ys else data.train_pool.y[:0]
    strata = label_strata(y, data.problem)
    return Gathered(
        x,
        y,
        np.concatenate(owner) if owner else np.zeros(0, np.int64),
        tuple(int(k) for k in chosen),
        tuple(called(data, int(k)) for k in chosen),
        strata,
        data.problem != "tokens",
        len(chosen) == int((data.sizes > 0).sum()) and int(room.sum()) == int(data.sizes.sum()),
        data.problem,
    )


def shared_out(sizes: Index, room: int) -> Index:
    """How many samples of each client, all of the small ones: as many as possible of the large, the same of each."""
    if int(sizes.sum()) <= room:
        return np.asarray(sizes, dtype=np.int64)
    low, high = 1, int(sizes.max())
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if int(np.minimum(sizes, level).sum()) <= room else (low, level - 1)
    return np.minimum(sizes, low).astype(np.int64)


def label_strata(y: Tensor, problem: str) -> Index:
    """[N] numbers that are equal where labels are: the class, the set of labels, or a range of the number.

    Samples of sequences with a label per position are all in one.
    """
    if problem == "classification":
        return y.numpy().astype(np.int64)
    if problem == "multilabel" and len(y):
        return np.unique(y.numpy() > 0, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    if problem == "regression" and len(y):
        first = y.reshape(len(y), -1)[:, 0].double().numpy()
        edges = np.unique(np.quantile(first, np.linspace(0, 1, BINS + 1)[1:-1]))
        return np.searchsorted(edges, first, side="right").astype(np.int64)
    return np.zeros(len(y), dtype=np.int64)


def label_rows(y: Tensor, problem: str, outputs: int, most: int = 60) -> Floats:
    """[N, C] how much of each label a sample has; of many labels the most frequent, and the rest together."""
    if problem == "multilabel":
        rows = y.double().numpy()
    elif problem == "tokens":
        known = (y != NO_LABEL).numpy()
        place = np.broadcast_to(np.arange(len(y))[:, None], y.shape)[known]
        token = y.numpy()[known].astype(np.int64)
        common = np.argsort(-np.bincount(token, minlength=outputs), kind="stable")[:most]
        column = np.full(outputs, min(most, outputs), dtype=np.int64)
        column[common] = np.arange(len(common))
        rows = np.zeros((len(y), min(most, outputs) + 1))
        np.add.at(rows, (place, column[token]), 1.0)
        return rows
    else:
        rows = np.zeros((len(y), outputs))
        rows[np.arange(len(y)), y.numpy().astype(np.int64)] = 1.0
    if rows.shape[1] <= most:
        return rows
    order = np.argsort(-rows.sum(0), kind="stable")
    return np.concatenate([rows[:, order[:most]], rows[:, order[most:]].sum(1, keepdims=True)], 1)
