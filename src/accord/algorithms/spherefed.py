"""SphereFed: unit features, a frozen orthonormal head, and one closed-form calibration.

Dong, Zhang, Li, Kung. "SphereFed: hyperspherical federated learning". ECCV 2022, arXiv 2207.09413.

    z = features / |features|,   W [C, D] with W W^T = I, drawn once and never trained, no bias
    client k:  min over the body   mean (W z - onehot(y))^2
    server:    body <- sum_k a_k body_k
    calibration:  every client, with the averaged body, sends V_k = sum z z^T and U_k = sum z onehot(y)^T;
                  W* = ((sum_k V_k + ridge I)^-1 sum_k U_k)^T takes the place of W in the global model's predictions

Sent: the whole model down, the body up; for the calibration D (D + C) numbers up from every client there is, which
tell its second moments of features and its sums of features per class. Nothing is kept by the client.
Defaults: calibrate = "end": after the last round ("always": after every round, at the price of one more exchange with
everyone; "never"). ridge = 0.001. W is Gram-Schmidt on the model's own first head, in whose place it is put.
Choices: the square is averaged over samples and classes, so its gradient is C times smaller than the squared
distance's and wants a higher local.lr than cross-entropy. W* is solved in float64 and never trained with: the next
round goes on from W. Personal accuracy is the trained body's under W. Needs as many features as classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import nn
from torch.nn import functional

import accord.authoring as fl
from accord.core.algorithm import Predictor, put
from accord.core.disclosure import Declared, Disclosure
from accord.core.question import Question
from accord.core.types import Exchange
from accord.models.around.heads import SHORTEST
from accord.parts.heads import FixedHead, orthonormal_head
from accord.parts.lookup import in_chunks
from accord.parts.samples import soft_labels

Calibrate = Literal["never", "end", "always"]


@dataclass(frozen=True)
class SquaredError(fl.Part):
    """Mean squared distance of the outputs to the one-hot labels."""

    needs = "a direction for every class"

    def loss(self, view: fl.View) -> fl.Term:
        """Mean over samples and classes."""
        logits = view.out.logits
        wanted = soft_labels(view.batch.y, logits.shape[1], logits)
        return view.mean((logits - wanted).square().mean(1))


@dataclass(frozen=True)
class Moments(Question):
    """V_k and U_k of the received model, in float64."""

    def discloses(self) -> Declared:
        return {"moments": Disclosure.STATISTIC}

    def answer(self, job: fl.Job) -> fl.Trees:
        """One pass over all samples."""
        received, buffers = job.shared["model"], job.shared["buffers"]
        features = in_chunks(lambda x: self.model.reference(received, buffers, x).features, job.data.x)
        unit = functional.normalize(features, dim=-1, eps=SHORTEST).double()
        labels = soft_labels(job.data.y, job.data.num_classes, unit)
        return {"moments": {"U": unit.mT @ labels, "V": unit.mT @ unit}}


@dataclass(frozen=True)
class Calibrated(fl.Method):
    """Averaging, and a head solved for in the end."""

    judged_trees: ClassVar[tuple[str, ...]] = ("model", "buffers", "calibrated")
    calibrate: Calibrate = field(kw_only=True)
    ridge: float = field(kw_only=True)
    rounds: int = field(kw_only=True)

    @property
    def needs_each(self) -> str:
        """The moments are summed."""
        return ""

    def round(self, state: fl.State, world: fl.World, exchange: Exchange) -> tuple[fl.State, fl.Replies]:
        """The usual round; where a calibration is due, everyone is asked for the moments."""
        state, replies = super().round(state, world, exchange)
        if self.calibrate == "never" or (self.calibrate == "end" and world.round + 1 < self.rounds):
            return state, replies
        able = [client for client in world.clients if world.sizes[client] > 0]
        moments = exchange("moments", able, self.message(state))
        ones = torch.ones(len(moments), dtype=torch.float64)
        total = moments.mean("moments", ones)
        ridge = self.ridge * torch.eye(len(total["V"]), dtype=torch.float64, device=total["V"].device)
        solved = torch.linalg.solve(total["V"] + ridge, total["U"])
        (name,) = self.model.head_names
        head = solved.mT.to(state["model"][name].dtype).contiguous()
        return put(state, calibrated={name: head}), replies

    def predictor(self, state: fl.State) -> Predictor | None:
        """The averaged body under W*, or W where there is none yet."""
        params = self._calibrated(state)
        return lambda x: self.model.reference(params, state["buffers"], x)

    def export(self, state: fl.State) -> nn.Module:
        return self.model.module(self._calibrated(state), state["buffers"])

    def _calibrated(self, state: fl.State) -> fl.Tree:
        return {**state["model"], **state.get("calibrated", {})}


@fl.method("client")
def spherefed(
    setup: fl.Setup,
    *,
    calibrate: Annotated[Calibrate, "when the head is solved for"] = "end",
    ridge: Annotated[
        float, fl.Range(above=0), fl.Search(1e-6, 1.0, log=True), "added to the diagonal before solving"
    ] = 1e-3,
) -> fl.Method:
    """Average bodies trained under one frozen orthonormal head."""
    setup = replace(setup, model=orthonormal_head(setup.model))
    local = setup.local(SquaredError(), FixedHead(), frozen=frozenset(setup.model.head_names))
    rules = {"model": fl.Mean(), "buffers": fl.Mean()}
    tasks = {} if calibrate == "never" else {"moments": Moments(setup.model)}
    fields = {"calibrate": calibrate, "ridge": ridge, "rounds": setup.rounds}
    return setup.method(local, rules, kind=Calibrated, extra_tasks=tasks, **fields)
