"""FedNTD: the global model's beliefs about the classes that are not the sample's own are preserved.

Lee, Jeong, Shin, Bae, Yun. "Preservation of the global knowledge by not-true distillation in federated
learning". NeurIPS 2022, arXiv 2106.03097.

    client k:  min_w  CE(w) + beta tau^2 mean_i KL( softmax(g_i / tau) || softmax(l_i / tau) )
               g_i, l_i: logits of the received and of the trained model on sample i, its true class left out
    server:    as FedAvg

Sent: as FedAvg; the teacher is the received model, in evaluation mode, run once per client and round over the
client's samples, or over its batches where local.steps touches only some of them. Defaults: beta = 1, tau =
1; beta = 0.1 is also common. beta = 0 is FedAvg. Where another part mixes samples (Mixup), the divergence is
mixed like the labels: l KL(y_i left out) + (1 - l) KL(y_j left out), with the teacher run on the mixed
samples in every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

import accord.authoring as fl
from accord.parts.lookup import asked, gathered


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
class NotTrueDistillation(fl.Part):
    """beta tau^2 KL of the received model's and the trained model's beliefs about the other classes."""

    needs = "classes that are not the sample's own"
    beta: float = 1.0
    tau: float = 1.0
    reach: int = 0  # samples a round's steps can touch, where their number is set; 0: all of them

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """The received model's logits on all of the client's samples, unless few of them will be asked for."""
        if self.beta == 0 or 0 < self.reach < len(job.data.y):
            return {}
        (logits,) = asked(job, self.name, lambda x: (self._teacher(model, job, x),))
        return {"logits": logits}

    def loss(self, view: fl.View) -> fl.Term | None:
        """None at beta = 0."""
        if self.beta == 0:
            return None
        stored = view.carry[self.name].get("logits")
        teacher = gathered(stored, view.batch, lambda x: self._teacher(view.model, view.job, x))
        apart = not_true_divergence(view.out.logits, teacher, view.batch.y, self.tau)
        return self.beta * self.tau**2 * view.mean(apart)

    @staticmethod
    def _teacher(model: fl.Model, job: fl.Job, x: Tensor) -> Tensor:
        return model.reference(job.shared["model"], job.shared["buffers"], x).logits


@fl.method("client", part=("beta", "tau"))
def fedntd(
    setup: fl.Setup,
    *,
    beta: Annotated[float, fl.AtLeast(0), fl.Search(choices=(0.1, 0.3, 1.0)), "weight of the distillation"] = 1.0,
    tau: Annotated[
        float, fl.Range(above=0), fl.Search(choices=(1.0, 2.0, 3.0)), "temperature of both models' logits"
    ] = 1.0,
    weight: fl.Weight = "examples",
) -> fl.Method:
    """Average models that kept the global model's beliefs about other classes."""
    reach = setup.plan.steps * setup.plan.batch_size
    return fl.averaging(setup, NotTrueDistillation(beta, tau, reach), weight=weight)
