"""The global model judged where the data is: by every client on its own test samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from accord.core.disclosure import Declared, Disclosure
from accord.core.question import Question
from accord.core.tensors import Trees
from accord.core.types import Job

if TYPE_CHECKING:
    from accord.core.algorithm import Predictor


@dataclass(frozen=True)
class Judgement(Question):
    """What travels are three sums: of the samples' scores (right or not), of their losses, and how many there were."""

    predictor: Callable[[Trees], Predictor | None]
    together: bool = False  # samples are shown in one fixed random order, as predictions depend on one another
    batch_size: int = 512

    def discloses(self) -> Declared:
        return {"score": Disclosure.SCORE}

    def answer(self, job: Job) -> Trees:
        predict, data, problem = self.predictor(job.shared), job.data, self.model.problem.plain
        sums = torch.zeros(2, dtype=torch.float64, device=job.info["lr"].device)
        count = len(data.test_y)
        if predict is not None:
            order = torch.arange(count, device=data.test_y.device)
            if self.together:
                mixed = torch.randperm(count, generator=torch.Generator().manual_seed(0))
                order = mixed.to(order.device)
            for start in range(0, count, self.batch_size):
                rows = order[start : start + self.batch_size]
                logits, y = predict(data.test_x[rows]).logits, data.test_y[rows]
                sums += torch.stack([problem.score(logits, y).sum(), problem.loss(logits, y).double().sum()])
        examples = torch.tensor(float(count), dtype=torch.float64, device=sums.device)
        return {"score": {"correct": sums[0], "loss": sums[1], "examples": examples}}
