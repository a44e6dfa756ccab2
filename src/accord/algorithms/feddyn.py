"""FedDyn: a dynamic regulariser makes the clients' optima agree with the federation's.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama. "Federated learning based on dynamic regularization".
ICLR 2021, arXiv 2111.04263.

    client k:  min_w  CE(w) - <g_k, w> + (alpha / 2) |w - w_t|^2   from w_t -> w_k
               g_k <- g_k - alpha (w_k - w_t)
    server:    h <- h - (alpha / K) sum_{k in S} (w_k - w_t)
               w_{t+1} = (1 / m) sum_{k in S} w_k - h / alpha

K all clients, m = |S| those of the round. The mean of all g_k is h at all times.

Sent: as FedAvg, the model down and up. Kept by the client: g_k; by the server: h (both as large as the model).
Defaults: alpha = 0.01 (the paper's code for CIFAR-10, with gradients clipped to a norm of 10: local.clip = 10).
The published code sends w_{t+1} but scores the plain average of the round's models, w_{t+1} + h / alpha:
report = "average" does so, and the module a run returns is then that average. Buffers are averaged uniformly.
No setting makes it FedAvg: a small alpha weakens the regulariser, while the server's correction h / alpha stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from torch import nn

import accord.authoring as fl
from accord.core.algorithm import Predictor
from accord.core.tensors import add, dot, squared_norm, subtract, zeros_like


@dataclass(frozen=True)
class DynamicRegulariser(fl.Part):
    """Both halves: g_k in the client's memory, h on the server."""

    needs_each = ""
    problems = ("any",)
    alpha: float
    num_clients: int

    def state(self, model: fl.Model, world: fl.World) -> fl.Trees:
        """h = 0."""
        return {"correction": zeros_like(model.init()[0])}

    def memory(self, job: fl.Job) -> fl.Trees:
        """g_k = 0."""
        return {"correction": zeros_like(job.shared["model"])}

    def loss(self, view: fl.View) -> fl.Term:
        """(alpha / 2) |w - w_t|^2 - <g_k, w>."""
        w, received = view.params["model"], view.job.shared["model"]
        held = 0.5 * self.alpha * squared_norm(subtract(w, received))
        return view.whole(held - dot(view.job.memory["correction"], w))

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        """g_k - alpha (w_k - w_t), which stays."""
        moved = subtract(carry["train"]["model"], job.shared["model"])
        return {}, {"correction": add(job.memory["correction"], moved, -self.alpha)}

    def update(self, state: fl.State, replies: fl.Replies, world: fl.World) -> fl.State:
        """h, then the model; sum_S (w_k - w_t) is m (mean - w_t)."""
        mean = replies.mean("model", "uniform")
        share = len(replies) / self.num_clients
        h = add(state["correction"], subtract(mean, state["model"]), -self.alpha * share)
        return {"model": add(mean, h, -1 / self.alpha), "correction": h}


@dataclass(frozen=True)
class AverageReported(fl.Method):
    """FedDyn scored by the plain average of the round's models."""

    judged_trees: ClassVar[tuple[str, ...]] = ("model", "buffers", "correction")
    alpha: float = field(kw_only=True)

    def predictor(self, state: fl.State) -> Predictor:
        """w_{t+1} + h / alpha."""
        average = self._average(state)
        return lambda x: self.model.reference(average, state["buffers"], x)

    def export(self, state: fl.State) -> nn.Module:
        return self.model.module(self._average(state), state["buffers"])

    def _average(self, state: fl.State) -> fl.Tree:
        return add(state["model"], state["correction"], 1 / self.alpha)


@fl.method("client")
def feddyn(
    setup: fl.Setup,
    *,
    alpha: Annotated[float, fl.Range(above=0), fl.Search(1e-3, 0.1, log=True), "strength of the regulariser"] = 0.01,
    report: Annotated[
        Literal["server", "average"], "score the server's model, or the plain average of the round's"
    ] = "server",
) -> fl.Method:
    """Correct the average by the history of the clients' moves."""
    local = setup.local(fl.SampleLoss(), DynamicRegulariser(alpha, setup.num_clients))
    rules = {"buffers": fl.Mean("uniform")}
    if report == "average":
        return setup.method(local, rules, kind=AverageReported, alpha=alpha)
    return setup.method(local, rules)
