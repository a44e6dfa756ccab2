"""Distillation from the received model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from accord.core.algorithm import Setup
from accord.core.model import Model
from accord.core.task import Corner, Part, View
from accord.core.types import Job
from accord.parts.bounds import within
from accord.parts.frozen import gathered, in_chunks
from accord.parts.losses import weighted_mean
from accord.settings import NOT_NEGATIVE, POSITIVE, Search

Beta = Annotated[float, NOT_NEGATIVE, Search(choices=(0.1, 0.3, 1.0)), "weight of the distillation"]
Tau = Annotated[float, POSITIVE, Search(choices=(1.0, 2.0, 3.0)), "temperature of both models' logits"]


def not_true_divergence(student: Tensor, teacher: Tensor, labels: Tensor, tau: float) -> Tensor:
    """[B] KL(teacher || student) of the softmaxes over the classes that are not the sample's own.

    With soft labels [B, C] it is the mean over the classes the label names, each left out in turn.
    """
    classes = student.shape[1]
    place = torch.arange(classes, device=student.device)
    others = (place.unsqueeze(1) + place[1:]) % classes  # [C, C - 1] all classes but that of the row
    if labels.dim() == 1:
        rows = others[labels]
        mine, theirs = student.gather(1, rows), teacher.gather(1, rows)
    else:
        mine, theirs = student[:, others], teacher[:, others]
    mine, theirs = (mine / tau).log_softmax(-1), (theirs / tau).log_softmax(-1)
    divergence = (theirs.exp() * (theirs - mine)).sum(-1)
    return divergence if labels.dim() == 1 else (labels * divergence).sum(1)


@dataclass(frozen=True)
class NotTrueDistillation(Part):
    """beta tau^2 KL of the received model's and the trained model's beliefs about the other classes."""

    beta: float = 1.0
    tau: float = 1.0
    reach: int = 0  # samples a round's steps can touch, where their number is set; 0: all of them

    def __post_init__(self) -> None:
        within(NOT_NEGATIVE, beta=self.beta)
        within(POSITIVE, tau=self.tau)

    def begin(self, model: Model, job: Job) -> Corner:
        """The received model's logits on all of the client's samples, unless few of them will be asked for."""
        if self.beta == 0 or 0 < self.reach < len(job.data.y):
            return {}
        return {"logits": in_chunks(lambda x: self._teacher(model, job, x), job.data.x)}

    def loss(self, view: View) -> Tensor | None:
        """None at beta = 0."""
        if self.beta == 0:
            return None
        stored = view.carry[self.name].get("logits")
        teacher = gathered(stored, view.batch, lambda x: self._teacher(view.model, view.job, x))
        apart = not_true_divergence(view.out.logits, teacher, view.batch.y, self.tau)
        return self.beta * self.tau**2 * weighted_mean(apart, view.batch.weight)

    @staticmethod
    def _teacher(model: Model, job: Job, x: Tensor) -> Tensor:
        return model.reference(job.shared["model"], job.shared["buffers"], x).logits


def fedntd(setup: Setup, *, beta: Beta = 1.0, tau: Tau = 1.0) -> NotTrueDistillation:
    """The part by its settings."""
    return NotTrueDistillation(beta, tau, setup.plan.steps * setup.plan.batch_size)
