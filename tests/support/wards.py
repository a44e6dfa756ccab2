"""Small federations of sites with names, whose train and test samples are others, for what is told of each site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import accord
from accord.config import load_config
from accord.data.federated import FederatedData, Groups, Pool
from accord.engine.run import Outcome

SITES = ("Lyon", "Oslo", "Bern", "Turin")


def wards(classes: int = 2) -> FederatedData:
    """Four sites, the last with test data of one class."""
    rng = np.random.default_rng(5)
    y, held = rng.integers(0, classes, 48), rng.integers(0, classes, 36)
    held[30:] = 0
    x, seen = ((rng.normal(size=(len(t), 3)) + t[:, None]) for t in (y, held))
    return divided(x, y, seen, held, classes, classes=("healthy", "ill") if classes == 2 else ())


def divided(x: Any, y: Any, seen: Any, held: Any, outputs: int, **others: Any) -> FederatedData:
    """48 training samples, 36 test samples, dealt unevenly."""
    return FederatedData(
        "wards",
        Pool(torch.tensor(x, dtype=torch.float32), torch.as_tensor(y)),
        Pool(torch.tensor(seen, dtype=torch.float32), torch.as_tensor(held)),
        outputs,
        Groups.of([range(4), range(4, 20), range(20, 40), range(40, 48)]),
        Groups.of([[]] * 4),
        Groups.of([range(8), range(8, 18), range(18, 30), range(30, 36)]),
        names=SITES,
        **others,
    )


def linear(outputs: int) -> nn.Module:
    """Always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return accord.adapt(nn.Sequential(nn.Flatten(), nn.Linear(3, outputs)), head="1")


def run(
    folder: Path, *sets: str, data: FederatedData | None = None, model: nn.Module | None = None, **given: Any
) -> Outcome:
    """Two rounds of a linear model."""
    data = wards() if data is None else data
    shared = ("rounds=2", "partition.clients=4", "executor=sequential", f"out={folder}", "local.lr=0.3")
    return accord.run(load_config(None, [*shared, *sets]), data=data, model=model or linear(data.num_classes), **given)
