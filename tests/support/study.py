"""A small federation of one's own (three hospitals, four measurements, three classes), and onlookers of studies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

import accord
from accord.data.federated import Dataset
from accord.observe import Observer
from accord.study.choice import Choice
from accord.study.entry import Entry
from accord.study.progress import Progress

SETS = (
    "partition.name=natural",
    "partition.clients=3",
    "clients.count=1",
    "local.batch_size=8",
    "local.epochs=3",
    "rounds=5",
    "executor=sequential",
)


def hospitals(seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, 90)
    owner = np.arange(90) % 3
    x = (rng.normal(size=(90, 4)) + y[:, None] + 2 * rng.normal(size=(3, 4))[owner]).astype(np.float32)
    return accord.from_arrays(x, y, clients=[f"hospital-{k}" for k in owner])


def network(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return accord.adapt(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), head="2")


class Breaker(Observer):
    """Ends a run after its third round."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.closed = False

    def round_ended(self, round: int, record: Mapping[str, Any]) -> None:
        if round == 3:
            raise self.error

    def close(self) -> None:
        self.closed = True


class Notes(Progress):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def tuning(self, description: str) -> None:
        self.lines.append(description.partition(":")[0])

    def started(self, entry: Entry, position: int, total: int) -> None:
        state = "finished" if entry.finished else "begun" if entry.begun else "new"
        self.lines.append(f"{position}/{total} {entry.folder.name} {state}")

    def run_failed(self, entry: Entry, reason: str) -> None:
        self.lines.append(f"{entry.folder.name} failed: {reason}")

    def chosen(self, algorithm: str, choice: Choice) -> None:
        self.lines.append(f"{algorithm} has trial {choice.trial}")

    def not_drawn(self, reason: str) -> None:
        self.lines.append(reason)
