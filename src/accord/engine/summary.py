"""What a run comes down to, and the measurements made from the clients' replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from accord.config import RunConfig
from accord.core.algorithm import Algorithm
from accord.core.tensors import Tree, subtract
from accord.core.types import Replies, State
from accord.data.federated import FederatedData
from accord.engine.evaluate import client_record, scores
from accord.engine.logs import versions
from accord.metrics import cosines, rounds_to, top_mean

Record = dict[str, Any]


def summarise(config: RunConfig, metrics: Sequence[Record], timings: Sequence[Record], data: FederatedData) -> Record:
    """`summary.json`. Methods without a global model have no accuracy of their own."""
    evaluated = {record["round"]: record["accuracy"] for record in metrics if "accuracy" in record}
    accuracies = list(evaluated.values())
    clients = [record["clients"] for record in metrics if "clients" in record]
    last = clients[-1] if clients else {}
    summary: Record = {
        "algorithm": config.algorithm.name,
        "dataset": data.name,
        "seed": config.seed,
        "rounds": config.rounds,
        "split": config.evaluate.split,
        "accuracy": accuracies[-1] if accuracies else None,
        "best_accuracy": max(accuracies) if accuracies else None,
        "top5_accuracy": top_mean(evaluated, 5) if accuracies else None,
        "client_accuracy": {name: last[name] for name in ("best", "worst", "mean", "std") if name in last},
        "rounds_to": {str(t): r for t, r in rounds_to(evaluated, config.targets).items()},
        **{
            way: sum(record[way] + record.get(f"start_{way}", 0) for record in metrics)
            for way in ("bytes_up", "bytes_down")
        },
        "seconds": round(sum(v for row in timings for k, v in row.items() if k != "round"), 3),
        "versions": versions(),
    }
    held = [record["validation_accuracy"] for record in metrics if "validation_accuracy" in record]
    if held:
        summary["validation_accuracy"] = held[-1]
    if data.note:
        summary["note"] = data.note
    return summary


def personal_record(replies: Replies, count: str = "personal_correct") -> Record:
    """Accuracy of the clients' own models on their own test data: plain, and weighted by test samples.

    `count` is the metric that holds the right answers: after local training, or (`personal_before`) before it.
    """
    found = [r.metrics for r in replies.results if count in r.metrics]
    if not found:
        return {}
    tested = np.array([int(m["personal_examples"]) for m in found])
    return client_record(np.array([float(m[count]) for m in found]) / tested, tested)


def measure_drift(old: Tree, new: Tree, replies: Replies) -> Record:
    """Cosine of each client's update with the step the server took."""
    sent = next(replies.each("model"))  # personal parameters never left the clients
    step = {name: new[name] - old[name] for name in sent}
    found = cosines((subtract(own, old) for own in replies.each("model")), step)
    return {"mean": float(np.mean(found)), "lowest": float(np.min(found))}


def measure_local_models(
    algorithm: Algorithm, state: State, replies: Replies, data: FederatedData, size: int, device: torch.device
) -> Record:
    """Accuracy of every local model on the whole test pool, its personal parameters (if any) included."""
    everything = np.arange(len(data.test_pool))
    predictors = (algorithm.local_predictor(state, result) for result in replies.results)
    found = [
        scores(predictor, data.test_pool, everything, size, device, together=algorithm.judges_together)[0].mean()
        for predictor in predictors
    ]
    return client_record(np.array(found))
