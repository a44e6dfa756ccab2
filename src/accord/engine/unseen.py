"""Clients that never trained: how fast does the final model become theirs?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from accord.core.algorithm import Algorithm
from accord.core.keys import Key
from accord.core.task import LocalTraining
from accord.core.types import Carry, Job, State
from accord.data.federated import FederatedData
from accord.engine.client import Request, Site, Work, run_client
from accord.errors import ConfigError
from accord.executors.sequential import one_thread


def check_unseen(algorithm: Algorithm, data: FederatedData) -> None:
    """Refuse before the first round what could not be measured after the last."""
    if not data.unseen:
        raise ConfigError("evaluate.unseen_epochs needs clients that never train: set partition.unseen above 0")
    if not isinstance(algorithm.tasks["train"], LocalTraining):
        raise ConfigError("evaluate.unseen_epochs needs a method whose clients train a model of their own")


def unseen_curve(
    algorithm: Algorithm, state: State, data: FederatedData, key: Key, device: torch.device, round: int, epochs: int
) -> dict[str, Any]:
    """Mean accuracy on unseen clients' own test data before, and after each epoch of, fine-tuning.

    A newcomer is sent what any client is sent and trains as the method trains, `epochs` times over its data: what is
    frozen in a round (the received model) stays the server's.
    """
    task = algorithm.tasks["train"]
    assert isinstance(task, LocalTraining)
    task = replace(task, plan=replace(task.plan, epochs=epochs, steps=0))
    request = Request("train", round, algorithm.schedule.at(round), algorithm.message(state), ())
    site = Site(data, key, device, with_test=True)
    curves = []
    with one_thread():
        for client in sorted(data.unseen):
            curve: list[float] = []

            def judge(job: Job, carry: Carry, curve: list[float] = curve) -> None:
                found = task.finish(job, carry).metrics
                curve.append(float(found["personal_correct"] / found["personal_examples"]))

            if len(data.test[client]) and len(data.train[client]):
                run_client(site, task, request, Work(client, {}, None), epoch_end=judge)
                curves.append(curve)
    if not curves:
        return {}
    means = torch.tensor(curves, dtype=torch.float64).mean(0)
    return {"clients": len(curves), "accuracy_after_epochs": [float(v) for v in means]}
