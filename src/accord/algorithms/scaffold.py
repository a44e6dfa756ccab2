"""SCAFFOLD: control variates correct the clients' drift.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh. "SCAFFOLD: stochastic controlled averaging for federated learning".
ICML 2020, arXiv 1910.06378.

    client k:  w <- w - eta (g - c_k + c)                                   tau steps from w_t
               c_k+ = c_k - c + (w_t - w_k) / (tau eta)                     (option II)
    server:    w_{t+1} = w_t + eta_g mean_k (w_k - w_t),   c += (m / K) mean_k (c_k+ - c_k)

With momentum rho the clients move further than tau eta g; tau is then replaced by
(tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho), the sum of the momentum's weights.

Sent: model and c down, model and the change of c up (twice FedAvg). Kept by the client: c_k.
The sum of all c_k divided by K equals c at all times. Defaults: eta_g = 1, uniform mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from accord.aggregate import FedAvgM, Mean, ServerOptimizer
from accord.core.algorithm import Aggregator, Method, Setup
from accord.core.model import Model
from accord.core.optim import SGD
from accord.core.task import Part
from accord.core.tensors import Trees, add, subtract, zeros_like
from accord.core.types import Carry, Job, Replies, State, World
from accord.errors import ConfigError
from accord.parts.losses import CrossEntropy
from accord.settings import POSITIVE, Search


@dataclass(frozen=True)
class ControlVariates(Part):
    """Both halves: c on the server, c_k in the client's memory."""

    conflicts: ClassVar[frozenset[str]] = frozenset({"the gradient rule"})
    momentum: float
    num_clients: int

    def state(self, model: Model, world: World) -> Trees:
        """c = 0."""
        return {"control": zeros_like(model.init()[0])}

    def send(self, state: State) -> Trees:
        """c."""
        return {"control": state["control"]}

    def memory(self, job: Job) -> Trees:
        """c_k = 0."""
        return {"control": zeros_like(job.shared["control"])}

    def grad(self, job: Job, carry: Carry, grads: Trees) -> Trees:
        """g - c_k + c."""
        own, server = job.memory["control"], job.shared["control"]
        return {**grads, "model": {n: g - own[n] + server[n] for n, g in grads["model"].items()}}

    def effective_steps(self, steps: Tensor) -> Tensor:
        """tau, or the sum of the momentum's weights over tau steps."""
        rho = self.momentum
        return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)

    def finish(self, model: Model, job: Job, carry: Carry) -> tuple[Trees, Trees]:
        """Option II; a client that took no step keeps its c_k."""
        own, server, start = job.memory["control"], job.shared["control"], job.shared["model"]
        distance = self.effective_steps(job.info["steps"]) * job.info["lr"]
        took_steps = (job.info["steps"] > 0).to(distance.dtype)
        scale = took_steps / distance.clamp(min=1e-30)
        trained = carry["train"]["model"]
        new = {n: own[n] - took_steps * server[n] + scale * (start[n] - trained[n]) for n in own}
        return {"control_change": subtract(new, own)}, {"control": new}

    def update(self, state: State, replies: Replies, world: World) -> State:
        """c += (m / K) mean (c_k+ - c_k)."""
        share = len(replies) / self.num_clients
        return {"control": add(state["control"], replies.mean("control_change", "uniform"), share)}


def scaffold(
    setup: Setup,
    *,
    server_lr: Annotated[float, POSITIVE, Search(0.1, 1.0), "eta_g, the server's step on the mean change"] = 1.0,
) -> Method:
    """Average models whose gradients were corrected by control variates."""
    if not isinstance(setup.optimizer, SGD):
        raise ConfigError("algorithm scaffold needs local.optimizer = 'sgd': its control variates divide by lr")
    if setup.keeps_optimizer:
        raise ConfigError("algorithm scaffold needs local.optimizer_state = 'fresh': c_k holds a round's gradients")
    mean: Aggregator = Mean("uniform")
    model_rule = mean if server_lr == 1 else ServerOptimizer(FedAvgM(lr=server_lr, beta=0.0), mean)
    parts = (CrossEntropy(), ControlVariates(setup.optimizer.momentum, setup.num_clients))
    return setup.method(setup.local(*parts), {"model": model_rule, "buffers": mean})
