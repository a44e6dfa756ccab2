"""Small data for every problem, learned in a few rounds: four clients, each with a shift of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

import accord
from accord.config import RunConfig
from accord.data.federated import Dataset

CLIENTS, EACH = 4, 40
LR = {"classification": 0.3, "multilabel": 0.5, "regression": 0.02, "tokens": 0.3}


def problem_data(task: str, seed: int = 0) -> Dataset:
    """Inputs [N, 6] and labels that follow them; for tokens [N, 5] ids, whose labels are what is left over by three."""
    rng = np.random.default_rng(seed)
    count = CLIENTS * EACH
    owners = np.repeat(np.arange(CLIENTS), EACH)
    if task == "tokens":
        x = rng.integers(0, 9, (count, 5))
        y = np.where(rng.random((count, 5)) < 0.2, -100, x % 3)
        y[:, 0] = x[:, 0] % 3
        return accord.from_arrays(x, y, owners, name="tokens", task="tokens")
    x = rng.normal(size=(count, 6)).astype(np.float32) + 0.3 * owners[:, None]
    scores = x @ rng.normal(size=(6, 3))
    y: Any = {
        "classification": scores.argmax(1),
        "multilabel": (scores > 0).astype(np.int64),
        "regression": scores[:, 0],
    }[task]
    return accord.from_arrays(x, y, owners, name=task, task=task)


def problem_config(task: str, method: str, out: Any, *sets: str) -> RunConfig:
    """A few short rounds on it."""
    model = ["model.name=transformer", "model.width=8", "model.layers=1"] if task == "tokens" else ["model.name=mlp"]
    common = [
        "rounds=4", f"partition.clients={CLIENTS}", "partition.name=natural", "clients.fraction=1.0",
        "local.batch_size=8", f"local.lr={LR[task]}", "local.epochs=2", f"algorithm.name={method}", f"out={out}",
        "executor=sequential",
    ]  # fmt: skip
    return accord.load_config(sets=[*common, *model, *sets])
