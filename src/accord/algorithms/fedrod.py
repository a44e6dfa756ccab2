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

from torch import nn

import accord.authoring as fl
from accord.parts.heads import needs_free_head


@dataclass(frozen=True)
class BalancedSoftmax(fl.Part):
    """Cross-entropy of logits + log class counts: the prior of the client's labels is not learned."""

    needs = "class counts"
    eps: float

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """[C] log n_kc."""
        counts = job.data.class_counts().to(job.info["lr"].dtype)
        return {"prior": counts.clamp(min=self.eps).log()}

    def loss(self, view: fl.View) -> fl.Term:
        """Mean over the batch."""
        logits = view.out.logits + view.carry[self.name]["prior"]
        return view.mean(view.losses(logits))


@dataclass(frozen=True)
class PersonalHead(fl.Part):
    """H_k, a correction of the generic head that stays with the client."""

    problems = ("classification", "multilabel", "regression")
    needs = "one vector of features per sample"
    head_names: tuple[str, ...]

    def memory(self, job: fl.Job) -> fl.Trees:
        return {"own_head": {name: job.shared["model"][name] for name in self.head_names}}

    def trainable(self, job: fl.Job) -> fl.Trees:
        return {"own_head": job.memory["own_head"]}

    def loss(self, view: fl.View) -> fl.Term:
        """Loss of the sum; its gradient reaches H_k alone."""
        extra = view.model.head(view.params["own_head"], view.out.features.detach())
        return view.mean(view.losses(view.out.logits.detach() + extra))

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        return {}, {"own_head": carry["train"]["own_head"]}

    def judged(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Tree, fl.Tree]:
        """G + H_k as one head."""
        trained, own = carry["train"]["model"], carry["train"]["own_head"]
        return {**trained, **{name: trained[name] + own[name] for name in own}}, carry["buffers"]


@fl.method("personal")
def fedrod(
    setup: fl.Setup,
    *,
    balanced: Annotated[bool, "balanced softmax for the generic head, instead of cross-entropy"] = True,
    eps: Annotated[float, fl.Range(above=0), "samples a class counts for that the client does not hold"] = 1e-8,
) -> fl.Method:
    """Average models with a balanced generic head; every client adds a personal one."""
    _check_head(setup)
    needs_free_head(setup, "fedrod")
    generic: fl.Part = BalancedSoftmax(eps) if balanced else fl.SampleLoss()
    local = setup.local(generic, PersonalHead(setup.model.head_names))
    return setup.method(local, {"model": fl.Mean(), "buffers": fl.Mean()})


def _check_head(setup: fl.Setup) -> None:
    """The sum of two heads is one only where they are linear."""
    prefix = setup.model.head_prefix.removesuffix(".")
    head = setup.model.network.get_submodule(prefix)
    if not isinstance(head, nn.Linear):
        raise fl.ConfigError(
            f"algorithm fedrod adds a second linear head, but the head {prefix!r} of this model is a "
            f"{type(head).__name__}; name the last linear layer as the head"
        )
