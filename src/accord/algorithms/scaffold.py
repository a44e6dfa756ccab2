"""SCAFFOLD: control variates correct the clients' drift.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh. "SCAFFOLD: stochastic controlled averaging for federated learning".
ICML 2020, arXiv 1910.06378.

    client k:  w <- w - eta (g - c_k + c)                                   tau steps from w_t
               c_k+ = c_k - c + (w_t - w_k) / (tau eta)                     (option II)
    server:    w_{t+1} = w_t + eta_g mean_k (w_k - w_t),   c += (m / K) mean_k (c_k+ - c_k)

With momentum rho the clients move further than tau eta g; tau is then replaced by the sum of the momentum's weights,
a = (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho), with Nesterov's form tau + rho a.

Sent: model and c down, model and the change of c up (twice FedAvg). Kept by the client: c_k.
The sum of all c_k divided by K equals c at all times. Defaults: eta_g = 1, uniform mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import accord.authoring as fl
from accord.aggregate import stepped
from accord.core.disclosure import Declared, Disclosure
from accord.core.optim import SGD
from accord.core.tensors import add, subtract, zeros_like


@dataclass(frozen=True)
class ControlVariates(fl.Part):
    """Both halves: c on the server, c_k in the client's memory."""

    needs_each = ""
    problems = ("any",)
    conflicts: ClassVar[frozenset[str]] = frozenset({"the gradient rule"})
    optimizer: SGD
    num_clients: int

    def state(self, model: fl.Model, world: fl.World) -> fl.Trees:
        """c = 0."""
        return {"control": zeros_like(model.init()[0])}

    def send(self, state: fl.State) -> fl.Trees:
        return {"control": state["control"]}

    def memory(self, job: fl.Job) -> fl.Trees:
        """c_k = 0."""
        return {"control": zeros_like(job.shared["control"])}

    def grad(self, job: fl.Job, carry: fl.Carry, grads: fl.Trees) -> fl.Trees:
        """g - c_k + c."""
        control, server = job.memory["control"], job.shared["control"]
        return {**grads, "model": {n: g - control[n] + server[n] for n, g in grads["model"].items()}}

    def discloses(self) -> Declared:
        return {"control_change": Disclosure.UPDATE}

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        """Option II; a client that took no step keeps its c_k."""
        control, server, start = job.memory["control"], job.shared["control"], job.shared["model"]
        distance = self.optimizer.effective_steps(job.info["steps"]) * job.info["lr"]
        took_steps = (job.info["steps"] > 0).to(distance.dtype)
        scale = took_steps / distance.clamp(min=1e-30)
        trained = carry["train"]["model"]
        new = {n: control[n] - took_steps * server[n] + scale * (start[n] - trained[n]) for n in control}
        return {"control_change": subtract(new, control)}, {"control": new}

    def update(self, state: fl.State, replies: fl.Replies, world: fl.World) -> fl.State:
        """c += (m / K) mean (c_k+ - c_k)."""
        share = len(replies) / self.num_clients
        return {"control": add(state["control"], replies.mean("control_change", "uniform"), share)}


@fl.method("client")
def scaffold(
    setup: fl.Setup,
    *,
    server_lr: Annotated[
        float, fl.Range(above=0), fl.Search(0.1, 1.0), "eta_g, the server's step on the mean change"
    ] = 1.0,
) -> fl.Method:
    """Average models whose gradients were corrected by control variates."""
    if not isinstance(setup.optimizer, SGD):
        raise fl.ConfigError("algorithm scaffold needs local.optimizer = 'sgd': its control variates divide by lr")
    if setup.keeps_optimizer:
        raise fl.ConfigError("algorithm scaffold needs local.optimizer_state = 'fresh': c_k holds a round's gradients")
    local = setup.local(fl.SampleLoss(), ControlVariates(setup.optimizer, setup.num_clients))
    mean = fl.Mean("uniform")
    return setup.method(local, {"model": stepped(mean, server_lr), "buffers": mean})
