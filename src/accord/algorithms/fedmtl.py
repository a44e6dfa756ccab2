"""FedMTL: multi-task learning; every client keeps a model of its own, tied to the others' by a regulariser.

Smith, Chiang, Sanjabi, Talwalkar. "Federated multi-task learning". NeurIPS 2017, arXiv 1705.10467.

    W = [w_1 .. w_K], one column per client, d parameters
    form = "pfllib" (for deep networks, as in PFLlib):
        client k:  CE(w_k) + 10^-f (|W|_F^2 + omega^2 |sum_j w_j|^2)
                   omega^2 = [(I - 1 1^T / K)^2]_00 = 1 - 1 / K,   f = floor(log10(d) + 1) + 1
    form = "mean" (mean-regularised):
        client k:  CE(w_k) + (mu / 2) |w_k - (1 / K) sum_j w_j|^2       the mean as received

The gradient goes through the client's own column alone, so of the others only their sum matters. The server keeps
S = sum_j w_j and clients send what they changed; every w_k could be read off the changes. There is no global model;
the score is the personal accuracy of w_k.

Sent: S down (one model), w_k's change up. Kept by the client: w_k and its running statistics.
Defaults: the PFLlib form, which has no weight to set and is a very small weight decay; mu = 0.1 in the other.
Choices: W holds all K clients (PFLlib: those of the round), which start from the same model; the other columns' part
of |W|_F^2 is a constant and left out of the loss in the metrics. mu = 0 is local training, to the bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import accord.authoring as fl
from accord.core.disclosure import Declared, Disclosure
from accord.core.tensors import add, scale, squared_norm, subtract

Form = Literal["pfllib", "mean"]


@dataclass(frozen=True)
class TiedTasks(fl.Part):
    """S at the server, and the term that ties a client's model to it."""

    needs_each = ""
    problems = ("any",)
    form: Form
    mu: float
    num_clients: int

    def state(self, model: fl.Model, world: fl.World) -> fl.Trees:
        """K times the first model."""
        return {"total": scale(model.init()[0], float(self.num_clients))}

    def send(self, state: fl.State) -> fl.Trees:
        return {"total": state["total"]}

    def update(self, state: fl.State, replies: fl.Replies, world: fl.World) -> fl.State:
        """S and the changes, in the order of the clients."""
        total = state["total"]
        for change in replies.each("change"):
            total = add(total, change)
        return {"total": total}

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """The model as it was before the round, and the sum of the others'."""
        start = {name: job.memory["personal"][name] for name in job.shared["total"]}
        return {"start": start, "others": subtract(job.shared["total"], start)}

    def loss(self, view: fl.View) -> fl.Term | None:
        """The chosen form's term."""
        own = view.params["model"]
        if self.form == "mean":
            if self.mu == 0:
                return None
            mean = scale(view.job.shared["total"], 1 / self.num_clients)
            return view.whole(0.5 * self.mu * squared_norm(subtract(own, mean)))
        size = sum(tensor.numel() for tensor in own.values())
        omega2 = 1 - 1 / self.num_clients
        everyone = add(own, view.carry[self.name]["others"])
        factor = 10.0 ** -(math.floor(math.log10(size) + 1) + 1)
        return view.whole(factor * (squared_norm(own) + omega2 * squared_norm(everyone)))

    def discloses(self) -> Declared:
        return {"change": Disclosure.UPDATE}

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        return {"change": subtract(carry["train"]["model"], carry[self.name]["start"])}, {}


@dataclass(frozen=True)
class MultiTask(fl.Method):
    """A method whose server knows the sum of the models and none of them."""

    def message(self, state: fl.State) -> fl.Trees:
        """S; a client's first model is the one it is installed with."""
        return {**super().message(state), "model": {}, "buffers": {}}


@fl.method("personal")
def fedmtl(
    setup: fl.Setup,
    *,
    form: Annotated[Form, "PFLlib's regulariser, or the distance to the mean"] = "pfllib",
    mu: Annotated[float, fl.AtLeast(0), fl.Search(1e-3, 1.0, log=True), "weight of the distance; form mean only"] = 0.1,
) -> fl.Method:
    """Personal models tied to one another."""
    names = frozenset(name for tree in setup.model.init() for name in tree)
    task = setup.local(fl.SampleLoss(), TiedTasks(form, mu, setup.num_clients), personal=names)
    return setup.method(task, {}, kind=MultiTask, has_global_model=False)
