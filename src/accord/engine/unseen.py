"""Clients that never trained: how fast does the final model become theirs?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from accord.config import RunConfig
from accord.core.algorithm import Algorithm
from accord.core.keys import Key
from accord.core.task import LocalTraining
from accord.core.types import State
from accord.data.federated import FederatedData
from accord.engine.client import Request, Site, Work, run_client
from accord.engine.sequential import one_thread
from accord.errors import ConfigError


def unseen_curve(
    algorithm: Algorithm, state: State, data: FederatedData, key: Key, device: torch.device, config: RunConfig
) -> dict[str, Any]:
    """Mean accuracy on unseen clients' own test data before, and after each epoch of, fine-tuning."""
    task = algorithm.tasks["train"]
    if not isinstance(task, LocalTraining) or algorithm.predictor(state) is None:
        raise ConfigError(
            f"evaluate.unseen_epochs needs a method with a global model; {config.algorithm.name} has none"
        )
    task = replace(task, plan=replace(task.plan, epochs=1, steps=0))
    site, epochs = Site(data, key, device), config.evaluate.unseen_epochs
    lr = algorithm.schedule.at(config.rounds)
    curves = []
    with one_thread():
        for client in sorted(data.unseen):
            x, y = data.client(client, "test")
            if not len(y):
                continue
            own, memory, curve = state, None, []
            for epoch in range(epochs + 1):
                predictor = algorithm.predictor(own)
                assert predictor is not None
                with torch.no_grad():
                    curve.append(float((predictor(x.to(device)).logits.argmax(1).cpu() == y).double().mean()))
                if epoch < epochs:
                    request = Request("train", config.rounds + epoch, lr, algorithm.message(own), ())
                    result = run_client(site, task, request, Work(client, {}, memory))
                    memory = {**(memory or {}), **result.memory}
                    own = {**own, **{t: {**own[t], **result.reply[t]} for t in ("model", "buffers")}}
            curves.append(curve)
    if not curves:
        return {}
    means = torch.tensor(curves, dtype=torch.float64).mean(0)
    return {"clients": len(curves), "accuracy_after_epochs": [float(v) for v in means]}
