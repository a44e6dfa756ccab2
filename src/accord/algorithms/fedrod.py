"""Fed-RoD: one body, a generic head trained as if all classes were equally frequent, and a personal head on top.

Chen, Chao. "On bridging generic and personalized federated learning for image classification". ICLR 2022,
arXiv 2107.00778.

    z = features, G = generic head, H_k = personal head, n_kc = client k's samples of class c
    body and G:  CE(G(z) + log n_k, y)          balanced softmax
    H_k:         CE(G(z) + H_k(z), y)           z and G(z) held fixed
    server:      body and G <- sum_k a_k (body_k, G_k)

Sent: as FedAvg. Kept by the client: H_k, never sent. Global accuracy is G's, personal accuracy that of G + H_k, which
is one linear head with the sum of their weights. The loss in the metrics is the sum of both.
Defaults: a class the client does not hold counts as eps = 1e-8 samples (log 0 has no value), weights by samples.
Choices: both losses are taken from the same forward pass, before either step; H_k starts as the G of the client's
first visit, as in PFLlib (the authors' code is not public), and takes the shared local optimizer's steps. The
variant with a hypernetwork is left out. balanced = false trains body and G as FedAvg does, to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from accord.aggregate import Mean
from accord.core.algorithm import Method, Setup
from accord.core.model import Model
from accord.core.task import Corner, Part, View
from accord.core.tensors import Tree, Trees
from accord.core.types import Carry, Job
from accord.parts.bounds import within
from accord.parts.losses import CrossEntropy, cross_entropy
from accord.parts.personal import needs_free_head, needs_linear_head
from accord.settings import POSITIVE


@dataclass(frozen=True)
class BalancedSoftmax(Part):
    """Cross-entropy of logits + log class counts: the prior of the client's labels is not learned."""

    eps: float

    def begin(self, model: Model, job: Job) -> Corner:
        """[C] log n_kc."""
        counts = job.data.class_counts().to(job.info["lr"].dtype)
        return {"prior": counts.clamp(min=self.eps).log()}

    def loss(self, view: View) -> Tensor:
        """Mean over the batch."""
        logits = view.out.logits + view.carry[self.name]["prior"]
        return cross_entropy(logits, view.batch.y, view.batch.weight)


@dataclass(frozen=True)
class PersonalHead(Part):
    """H_k, a correction of the generic head that stays with the client."""

    head_names: tuple[str, ...]

    def memory(self, job: Job) -> Trees:
        """The received head."""
        return {"own_head": {name: job.shared["model"][name] for name in self.head_names}}

    def trainable(self, job: Job) -> Trees:
        """H_k."""
        return {"own_head": job.memory["own_head"]}

    def loss(self, view: View) -> Tensor:
        """CE of the sum; its gradient reaches H_k alone."""
        extra = view.model.head(view.params["own_head"], view.out.features.detach())
        return cross_entropy(view.out.logits.detach() + extra, view.batch.y, view.batch.weight)

    def finish(self, model: Model, job: Job, carry: Carry) -> tuple[Trees, Trees]:
        """H_k stays."""
        return {}, {"own_head": carry["train"]["own_head"]}

    def judged(self, model: Model, job: Job, carry: Carry) -> tuple[Tree, Tree]:
        """G + H_k as one head."""
        trained, own = carry["train"]["model"], carry["train"]["own_head"]
        return {**trained, **{name: trained[name] + own[name] for name in own}}, carry["buffers"]


def fedrod(
    setup: Setup,
    *,
    balanced: Annotated[bool, "balanced softmax for the generic head, instead of cross-entropy"] = True,
    eps: Annotated[float, POSITIVE, "samples a class counts for that the client does not hold"] = 1e-8,
) -> Method:
    """Average models with a balanced generic head; every client adds a personal one."""
    within(POSITIVE, eps=eps)
    needs_linear_head(setup, "fedrod")
    needs_free_head(setup, "fedrod")
    generic: Part = BalancedSoftmax(eps) if balanced else CrossEntropy()
    local = setup.local(generic, PersonalHead(setup.model.head_names))
    return setup.method(local, {"model": Mean(), "buffers": Mean()})
