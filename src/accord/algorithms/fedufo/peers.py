"""The exchanged models of a round's group, and what they say about a client's own samples.

m models, n samples, D features, C classes. They arrive once for the whole cohort, stacked: `priors` and
`prior_buffers` hold [m, ...] tensors, `group` the ids of their owners (and class counts where wanted).
They are frozen, so a client runs them over its samples once a round and looks the answers up in every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
from torch import Tensor

import accord.authoring as fl
from accord.core.disclosure import Declared, Disclosure
from accord.core.model import Fuse, Out
from accord.parts.lookup import asked, gathered

GroupTarget = Literal["softmax", "normalise", "logits"]
Reads = Literal["features", "maps"]
Forward = Callable[[fl.Tree, fl.Tree, Tensor, Fuse | None], Out]

FLOOR = 1e-8  # a class nobody in the group holds has probability 0 under `normalise`, and KL wants a logarithm


def group_message(priors: fl.Replies, device: torch.device) -> fl.Trees:
    """What the `prior` task brought, as every client of the group is sent it."""
    group: fl.Tree = {"ids": torch.tensor(priors.ids, device=device)}
    if priors.has("counts"):
        group["counts"] = priors.stacked("counts")["classes"]
    return {"priors": priors.stacked("model"), "prior_buffers": priors.stacked("buffers"), "group": group}


def outputs(forward: Forward, params: fl.Tree, buffers: fl.Tree, x: Tensor, reads: Reads) -> Out:
    """Logits, and what a discriminator reads in the place of the features: those, or the flattened feature maps."""
    if reads == "features":
        return forward(params, buffers, x, None)
    seen: list[Tensor] = []

    def pass_on(maps: Tensor) -> Tensor:
        seen.append(maps)
        return maps

    logits = forward(params, buffers, x, pass_on).logits
    return Out(logits, seen[0].flatten(1).to(logits.dtype))


def width(model: fl.Model, reads: Reads) -> int:
    """How many numbers a discriminator reads of a sample."""
    shape = getattr(model.network, "map_shape", None) or ()
    return model.num_features if reads == "features" else prod(shape) if len(shape) == 3 else 0


def class_shares(counts: Tensor) -> Tensor:
    """[m, C] the share of each class's samples that each of the group holds; 0 for a class nobody holds."""
    return counts / counts.sum(0).clamp(min=1)


def group_target(logits: Tensor, shares: Tensor, kind: GroupTarget) -> Tensor:
    """[n, C] log-probabilities the group agrees on, from its [n, m, C] logits.

    With u = sum_j p_j * softmax(logits_j): `softmax` is softmax(u), as printed; `normalise` is u / sum(u);
    `logits` is softmax(sum_j p_j * logits_j).
    """
    said = logits if kind == "logits" else logits.softmax(-1)
    merged = (shares * said).sum(1)
    if kind == "normalise":
        return (merged / merged.sum(-1, keepdim=True)).clamp(min=FLOOR).log()
    return merged.log_softmax(-1)


@dataclass(frozen=True)
class Peers(fl.Part):
    """Answers of the whole group on the client's samples; other parts read them, it adds no loss itself.

    Without `priors` in the message (a client asked on its own, a round that needs none) its corner is empty.
    """

    problems = ("any",)
    features: bool  # keep [n, m, D] features, for a discriminator
    target: GroupTarget | None = None  # keep the group's target, for the consensus ...
    target_from: int = 0  # ... from this round on
    reads: Reads = "features"  # what is kept as the features

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """One pass of every model of the group over the client's data."""
        if "priors" not in job.shared or not (self.features or self.target):
            return {}
        ids, client = job.shared["group"]["ids"].tolist(), int(job.info["client"])
        consensus = self.target is not None and int(job.info["round"]) >= self.target_from
        # Its own prior is asked for predictions only: a discriminator sees the features of its model in training.
        members = [j for j, member in enumerate(ids) if consensus or member != client]
        outs = {j: Out(*asked(job, (self.name, j), self._member(model, job, j))) for j in members}
        return dict(self._kept(model, job, job.data.x, outs))

    def rows(self, model: fl.Model, job: fl.Job, carry: fl.Carry, batch: fl.Batch, what: str) -> Tensor | None:
        """`features` or `target` of a batch; None where the group is not there to ask."""
        corner: fl.Tree = carry[self.name]
        if what not in corner:
            return None
        members = range(len(job.shared["group"]["ids"]))

        def kept(x: Tensor) -> Tensor:
            return self._kept(model, job, x, {j: self._member(model, job, j)(x) for j in members})[what]

        return gathered(corner[what], batch, kept)

    def _member(self, model: fl.Model, job: fl.Job, j: int) -> Callable[[Tensor], Out]:
        """What the j-th model of the group says of samples."""
        params, buffers = (
            {name: tensor[j] for name, tensor in job.shared.get(stacked, {}).items()}
            for stacked in ("priors", "prior_buffers")
        )
        return lambda x: outputs(model.reference, params, buffers, x, self.reads)

    def _kept(self, model: fl.Model, job: fl.Job, x: Tensor, outs: Mapping[int, Out]) -> fl.Tree:
        """What is kept of the answers; a target wants all models', features of those that were not asked are 0."""
        group = job.shared["group"]
        answers: fl.Tree = {}
        if self.features:
            shape = (len(x), len(group["ids"]), width(model, self.reads))
            answers["features"] = torch.zeros(shape, dtype=job.info["lr"].dtype, device=x.device)
            for j, out in outs.items():
                answers["features"][:, j] = out.features
        if self.target is not None and len(outs) == len(group["ids"]):
            logits = torch.stack([out.logits for out in outs.values()], 1)
            answers["target"] = group_target(logits, class_shares(group["counts"]).to(logits), self.target)
        return answers


@dataclass(frozen=True)
class ClassCounts(fl.Part):
    """Tells the group how many samples of each class the client holds."""

    needs = "class counts for CGR"

    def discloses(self) -> Declared:
        return {"counts": Disclosure.STATISTIC}

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        """[C] counts."""
        return {"counts": {"classes": job.data.class_counts()}}, {}


@dataclass(frozen=True)
class FromPrior(fl.LocalTraining):
    """Training that goes on from the client's own prior, where priors were exchanged.

    What the parts see as the received model is still the global one.
    """

    def begin(self, job: fl.Job) -> fl.Carry:
        """The usual carry with the prior's values put in."""
        carry = super().begin(job)
        if "priors" in job.shared:
            position = int((job.shared["group"]["ids"] == job.info["client"]).nonzero())
            for name, tensor in carry["train"]["model"].items():
                tensor.copy_(job.shared["priors"][name][position])
            for name, tensor in carry["buffers"].items():
                tensor.copy_(job.shared["prior_buffers"][name][position])
        return carry
