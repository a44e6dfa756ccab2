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

from torch import Tensor

from accord.aggregate import EMA, Mean
from accord.aggregate.mean import Weighting
from accord.core.algorithm import Aggregator, Method, Setup
from accord.core.model import Model, Out
from accord.core.task import Corner, Part, View
from accord.core.tensors import Tree, Trees, clone, squared_norm
from accord.core.types import Batch, Carry, Job
from accord.errors import ConfigError
from accord.parts.bounds import whole, within
from accord.parts.losses import CrossEntropy
from accord.parts.personal import batch_gradient
from accord.settings import NOT_NEGATIVE, POSITIVE, AtLeast, Search


@dataclass(frozen=True)
class MoreauEnvelope(Part):
    """theta and its inner steps; the model itself is only pulled towards it."""

    stacks = False  # `forward` hands on what `before` computed
    lam: float
    inner_steps: int
    personal_lr: float
    decay: float

    def begin(self, model: Model, job: Job) -> Corner:
        """theta = w_t."""
        return {"theta": clone(job.shared["model"])}

    def before(self, model: Model, job: Job, carry: Carry, batch: Batch) -> None:
        """The inner steps; w_k stands still."""
        corner, anchor = carry[self.name], carry["train"]["model"]
        theta: Tree = corner["theta"]
        for _ in range(self.inner_steps):
            slopes, corner["out"] = batch_gradient(model, theta, carry["buffers"], batch)
            for name, value in theta.items():
                pulled = slopes[name] + self.lam * (value - anchor[name]) + self.decay * value
                value.sub_(pulled, alpha=self.personal_lr)

    def forward(self, model: Model, job: Job, carry: Carry, params: Trees, batch: Batch) -> Out:
        """theta's answers: w_k itself is never run."""
        out: Out = carry[self.name].pop("out")  # only for this step
        return out

    def loss(self, view: View) -> Tensor:
        """(lam / 2) |w_k - theta|^2, whose gradient is the envelope's."""
        theta = view.carry[self.name]["theta"]
        return 0.5 * self.lam * squared_norm({n: p - theta[n] for n, p in view.params["model"].items()})

    def finish(self, model: Model, job: Job, carry: Carry) -> tuple[Trees, Trees]:
        """theta stays."""
        return {}, {"own": carry[self.name]["theta"], "own_buffers": carry["buffers"]}

    def judged(self, model: Model, job: Job, carry: Carry) -> tuple[Tree, Tree]:
        """theta."""
        return carry[self.name]["theta"], carry["buffers"]


def pfedme(
    setup: Setup,
    *,
    lam: Annotated[float, POSITIVE, Search(1.0, 30.0, log=True), "pull between theta and the client's model"] = 15.0,
    inner_steps: Annotated[int, AtLeast(1), Search(choices=(1, 3, 5)), "steps of theta on every batch"] = 5,
    personal_lr: Annotated[float, POSITIVE, Search(0.005, 0.1, log=True), "eta_p, theta's learning rate"] = 0.09,
    decay: Annotated[float, NOT_NEGATIVE, "weight decay of theta"] = 0.001,
    beta: Annotated[float, POSITIVE, Search(choices=(1.0, 2.0)), "the server's step towards the mean"] = 1.0,
    weight: Annotated[Weighting, "average by samples, or every client alike"] = "uniform",
) -> Method:
    """Average models pulled towards personal ones."""
    within(POSITIVE, lam=lam, personal_lr=personal_lr, beta=beta)
    within(NOT_NEGATIVE, decay=decay)
    whole(AtLeast(1), inner_steps=inner_steps)
    if setup.schedule.lr * lam >= 2:
        raise ConfigError(
            f"algorithm pfedme: local.lr = {setup.schedule.lr:g} times lam = {lam:g} is {setup.schedule.lr * lam:g}, "
            "and 2 or more diverges; lower local.lr (the paper: 0.005 with lam = 15) or lam"
        )
    envelope = MoreauEnvelope(lam, inner_steps, personal_lr, decay)
    mean = Mean(weight)
    rule: Aggregator = mean if beta == 1 else EMA(1 - beta, mean)
    local = setup.local(CrossEntropy(), envelope, forward=envelope.forward)
    return setup.method(local, {"model": rule, "buffers": mean})
