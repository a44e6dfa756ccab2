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

from accord.aggregate.mean import Mean, Weighting
from accord.core.algorithm import Method, Setup
from accord.core.model import Model
from accord.core.task import Corner, Part, View
from accord.core.tensors import Tree, Trees, clone
from accord.core.types import Batch, Carry, Job
from accord.parts.bounds import within
from accord.parts.losses import cross_entropy, weighted_mean
from accord.settings import FRACTION, Search


@dataclass(frozen=True)
class MutualLearning(Part):
    """Both losses; the private model is trained beside the shared one and stays in memory."""

    alpha: float
    beta: float

    def memory(self, job: Job) -> Trees:
        """The private model starts as the received one."""
        return {"private": job.shared["model"], "private_buffers": job.shared["buffers"]}

    def begin(self, model: Model, job: Job) -> Corner:
        """The private model's running statistics, to be overwritten."""
        return {"buffers": clone(job.memory["private_buffers"])}

    def trainable(self, job: Job) -> Trees:
        """The private model."""
        return {"private": job.memory["private"]}

    def loss(self, view: View) -> Tensor:
        """L_g + L_l: what teaches is held fixed, so each gradient is that of its own loss."""
        buffers = view.carry[self.name]["buffers"]
        own = view.model.train(view.params["private"], buffers, view.batch.x).logits
        shared = view.out.logits
        learned = taught(shared, own.detach(), view.batch, self.beta)
        return learned + taught(own, shared.detach(), view.batch, self.alpha)

    def finish(self, model: Model, job: Job, carry: Carry) -> tuple[Trees, Trees]:
        """The private model stays."""
        return {}, {"private": carry["train"]["private"], "private_buffers": carry[self.name]["buffers"]}

    def judged(self, model: Model, job: Job, carry: Carry) -> tuple[Tree, Tree]:
        """The private model."""
        return carry["train"]["private"], carry[self.name]["buffers"]


def taught(student: Tensor, teacher: Tensor, batch: Batch, share: float) -> Tensor:
    """share CE + (1 - share) KL(teacher || student), means over the batch; a term of weight 0 is left out."""
    if share == 1:
        return cross_entropy(student, batch.y, batch.weight)
    mine, theirs = student.log_softmax(1), teacher.log_softmax(1)
    divergence = weighted_mean((theirs.exp() * (theirs - mine)).sum(1), batch.weight)
    if share == 0:
        return divergence
    return share * cross_entropy(student, batch.y, batch.weight) + (1 - share) * divergence


def fml(
    setup: Setup,
    *,
    alpha: Annotated[float, FRACTION, Search(0.1, 0.9), "share of the labels in the private model's loss"] = 0.5,
    beta: Annotated[float, FRACTION, Search(0.1, 0.9), "share of the labels in the shared model's loss"] = 0.5,
    weight: Annotated[Weighting, "average by samples, or every client alike"] = "examples",
) -> Method:
    """Average models that learned from, and taught, private ones."""
    within(FRACTION, alpha=alpha, beta=beta)
    rules = {"model": Mean(weight), "buffers": Mean(weight)}
    return setup.method(setup.local(MutualLearning(alpha, beta)), rules)
