"""Consensus losses: keep a client's predictions near those of its group, or of the global model (FedUFO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

import accord.authoring as fl
from accord.algorithms.fedufo.peers import Peers
from accord.parts.lookup import asked, gathered

KLDirection = Literal["reverse", "forward"]
KLReduction = Literal["mean", "batch"]


@dataclass(frozen=True)
class Divergence:
    """KL between a model's prediction q and a fixed target p.

    `reverse` is KL(q || p) = sum_c q_c (log q_c - log p_c), `forward` KL(p || q). `batch` averages over
    samples, `mean` over samples and classes, which divides by C.
    """

    direction: KLDirection = "reverse"
    reduction: KLReduction = "mean"

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        """[B] from [B, C] logits and log-probabilities."""
        ours = logits.log_softmax(1)
        per_class = ours.exp() * (ours - target) if self.direction == "reverse" else target.exp() * (target - ours)
        return per_class.sum(1) if self.reduction == "batch" else per_class.mean(1)


@dataclass(frozen=True)
class GroupConsensus(fl.Part):
    """CGR: weight * KL to what the group's priors predict together."""

    needs = "class counts, and probabilities of classes, for CGR"
    peers: Peers
    weight: float
    divergence: Divergence

    def loss(self, view: fl.View) -> fl.Term | None:
        """None where there is no group to agree with."""
        target = self.peers.rows(view.model, view.job, view.carry, view.batch, "target")
        if target is None:
            return None
        return self.weight * view.mean(self.divergence(view.out.logits, target))


@dataclass(frozen=True)
class GlobalConsensus(fl.Part):
    """CGL: weight * KL to what the received model predicts, from `first_round` on."""

    needs = "probabilities of classes for CGL"
    weight: float
    divergence: Divergence
    first_round: int

    def acts(self, job: fl.Job) -> bool:
        """Whether its first round has come."""
        return int(job.info["round"]) >= self.first_round

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """The received model's log-probabilities on all samples, and the classes it names, for who wants to know."""
        if not self.acts(job):
            return {}
        (logits,) = asked(job, self.name, lambda x: (_received(model, job, x),))
        return {"target": logits.log_softmax(1), "guess": logits.argmax(1)}

    def loss(self, view: fl.View) -> fl.Term | None:
        """None before its first round."""
        corner = view.carry[self.name]
        if not corner:
            return None
        target = gathered(corner["target"], view.batch, lambda x: _received(view.model, view.job, x).log_softmax(1))
        return self.weight * view.mean(self.divergence(view.out.logits, target))


def _received(model: fl.Model, job: fl.Job, x: Tensor) -> Tensor:
    """Logits of the model the client was sent."""
    return model.reference(job.shared["model"], job.shared["buffers"], x).logits
