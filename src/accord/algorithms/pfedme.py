"""pFedMe: personal models through Moreau envelopes.

Dinh, Tran, Nguyen. "Personalized federated learning with Moreau envelopes". NeurIPS 2020, arXiv 2006.08848.

    client k, from w_k = theta = w_t, every batch:
               inner_steps times  theta <- theta - eta_p (g(theta) + lam (theta - w_k) + decay theta)
               w_k <- w_k - eta lam (w_k - theta)
    server:    w_{t+1} = (1 - beta) w_t + beta mean_k w_k

Sent: as FedAvg. Kept by the client: theta_k and its running statistics. Personal accuracy is theta_k's. The loss in
the metrics is the envelope's value: CE(theta), before theta's last step, + (lam / 2) |w_k - theta|^2.
Defaults: lam = 15, inner_steps = 5, beta = 1, eta_p = 0.09 (0.01 for the CIFAR sets), decay = 0.001; eta is local.lr
(0.005 in the paper). Choices: theta goes on from batch to batch and starts every round at w_t, as in the authors'
code; its steps are plain, those of w_k the shared local optimizer's; the mean is uniform as in the paper (the code:
weight = "examples"). Running statistics are theta's, as w_k is never run itself. eta lam of 2 or more diverges and is
refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import accord.authoring as fl
from accord.aggregate import EMA
from accord.core.model import Out
from accord.core.tensors import clone, squared_norm, subtract
from accord.parts.losses import batch_gradient


@dataclass(frozen=True)
class MoreauEnvelope(fl.Part):
    """theta and its inner steps; the model itself is only pulled towards it."""

    problems = ("any",)
    stacks = False  # `forward` hands on what `before` computed
    lam: float
    inner_steps: int
    personal_lr: float
    decay: float

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """theta = w_t."""
        return {"theta": clone(job.shared["model"])}

    def before(self, model: fl.Model, job: fl.Job, carry: fl.Carry, batch: fl.Batch) -> None:
        """The inner steps; w_k stands still."""
        corner, anchor = carry[self.name], carry["train"]["model"]
        theta: fl.Tree = corner["theta"]
        for _ in range(self.inner_steps):
            slopes, corner["out"] = batch_gradient(model, theta, carry["buffers"], batch)
            for name, value in theta.items():
                pulled = slopes[name] + self.lam * (value - anchor[name]) + self.decay * value
                value.sub_(pulled, alpha=self.personal_lr)

    def forward(self, model: fl.Model, job: fl.Job, carry: fl.Carry, params: fl.Trees, batch: fl.Batch) -> Out:
        """theta's answers: w_k itself is never run."""
        out: Out = carry[self.name].pop("out")  # only for this step
        return out

    def loss(self, view: fl.View) -> fl.Term:
        """(lam / 2) |w_k - theta|^2, whose gradient is the envelope's."""
        theta = view.carry[self.name]["theta"]
        return view.whole(0.5 * self.lam * squared_norm(subtract(view.params["model"], theta)))

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        return {}, {"own": carry[self.name]["theta"], "own_buffers": carry["buffers"]}

    def judged(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Tree, fl.Tree]:
        return carry[self.name]["theta"], carry["buffers"]


@fl.method("personal")
def pfedme(
    setup: fl.Setup,
    *,
    lam: Annotated[
        float, fl.Range(above=0), fl.Search(1.0, 30.0, log=True), "pull between theta and the client's model"
    ] = 15.0,
    inner_steps: Annotated[int, fl.AtLeast(1), fl.Search(choices=(1, 3, 5)), "steps of theta on every batch"] = 5,
    personal_lr: Annotated[
        float, fl.Range(above=0), fl.Search(0.005, 0.1, log=True), "eta_p, theta's learning rate"
    ] = 0.09,
    decay: Annotated[float, fl.AtLeast(0), "weight decay of theta"] = 0.001,
    beta: Annotated[
        float, fl.Range(above=0), fl.Search(choices=(1.0, 2.0)), "the server's step towards the mean"
    ] = 1.0,
    weight: fl.Weight = "uniform",
) -> fl.Method:
    """Average models pulled towards personal ones."""
    if setup.schedule.lr * lam >= 2:
        raise fl.ConfigError(
            f"algorithm pfedme: local.lr = {setup.schedule.lr:g} times lam = {lam:g} is {setup.schedule.lr * lam:g}, "
            "and 2 or more diverges; lower local.lr (the paper: 0.005 with lam = 15) or lam"
        )
    envelope = MoreauEnvelope(lam, inner_steps, personal_lr, decay)
    mean = fl.Mean(weight)
    rule = mean if beta == 1 else EMA(1 - beta, mean)
    return setup.method(setup.local(fl.SampleLoss(), envelope), {"model": rule, "buffers": mean})
