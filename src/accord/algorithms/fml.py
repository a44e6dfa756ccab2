"""FML: federated mutual learning; a private model and the shared one teach each other.

Shen, Zhang, Jia, Zhang, Huang, Zhou, Kuang, Wu, Wu. "Federated mutual learning". arXiv 2006.16765, 2020.

    client k holds a private model l; g is the shared ("meme") model; p_l, p_g their softmax outputs on the batch
      L_l = alpha CE(l) + (1 - alpha) KL(p_g || p_l)       p_g held fixed
      L_g = beta  CE(g) + (1 - beta)  KL(p_l || p_g)       p_l held fixed
    both step on the same batch, from the outputs before the step, each with its own optimizer state
    server:    g_{t+1} = sum_k a_k g_k

Sent: g only, as FedAvg. Kept by the client: l and its buffers, never sent. Personal accuracy is l's, global accuracy
is g's. The loss in the metrics is L_l + L_g.
Defaults: alpha = beta = 0.5; averaged by samples as in the paper (its code: weight = "uniform").
Choices: l has g's architecture and starts as the g of the client's first visit. With alpha = beta the two are then
equal throughout that visit, and part only when an average comes back. beta = 1 is FedAvg for g.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

import accord.authoring as fl
from accord.core.tensors import clone


@dataclass(frozen=True)
class MutualLearning(fl.Part):
    """Both losses; the private model is trained beside the shared one and stays in memory."""

    needs = "probabilities of classes, which two models teach each other"
    alpha: float
    beta: float

    def memory(self, job: fl.Job) -> fl.Trees:
        """The private model starts as the received one."""
        return {"private": job.shared["model"], "private_buffers": job.shared["buffers"]}

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """The private model's running statistics, to be overwritten."""
        return {"buffers": clone(job.memory["private_buffers"])}

    def trainable(self, job: fl.Job) -> fl.Trees:
        return {"private": job.memory["private"]}

    def loss(self, view: fl.View) -> fl.Term:
        """L_g + L_l: what teaches is held fixed, so each gradient is that of its own loss."""
        buffers = view.carry[self.name]["buffers"]
        own = view.model.train(view.params["private"], buffers, view.batch.x).logits
        shared = view.out.logits
        return taught(view, shared, own.detach(), self.beta) + taught(view, own, shared.detach(), self.alpha)

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        """The private model stays."""
        return {}, {"private": carry["train"]["private"], "private_buffers": carry[self.name]["buffers"]}

    def judged(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Tree, fl.Tree]:
        return carry["train"]["private"], carry[self.name]["buffers"]


def taught(view: fl.View, student: Tensor, teacher: Tensor, share: float) -> fl.Term:
    """share CE + (1 - share) KL(teacher || student), means over the batch; a term of weight 0 is left out."""
    if share == 1:
        return view.mean(view.losses(student))
    mine, theirs = student.log_softmax(1), teacher.log_softmax(1)
    divergence = view.mean((theirs.exp() * (theirs - mine)).sum(1))
    if share == 0:
        return divergence
    return share * view.mean(view.losses(student)) + (1 - share) * divergence


@fl.method("personal")
def fml(
    setup: fl.Setup,
    *,
    alpha: Annotated[
        float, fl.Range(low=0, high=1), fl.Search(0.1, 0.9), "share of the labels in the private model's loss"
    ] = 0.5,
    beta: Annotated[
        float, fl.Range(low=0, high=1), fl.Search(0.1, 0.9), "share of the labels in the shared model's loss"
    ] = 0.5,
    weight: fl.Weight = "examples",
) -> fl.Method:
    """Average models that learned from, and taught, private ones."""
    rules = {"model": fl.Mean(weight), "buffers": fl.Mean(weight)}
    return setup.method(setup.local(MutualLearning(alpha, beta)), rules)
