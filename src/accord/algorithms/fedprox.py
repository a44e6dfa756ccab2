"""FedProx: a proximal term keeps local models near the global one.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. "Federated optimization in heterogeneous networks". MLSys 2020,
arXiv 1812.06127.

    client k:  min_w  CE(w) + (mu / 2) |w - w_t|^2
    server:    as FedAvg

Sent: as FedAvg. Defaults: mu = 0.01 (common; 0.001 to 1 are searched). The term is part of the loss, so momentum
acts on it too; mu = 0 is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import accord.authoring as fl
from accord.core.tensors import squared_norm, subtract


@dataclass(frozen=True)
class Proximal(fl.Part):
    """(mu / 2) |w - w_t|^2, the pull back to the received model."""

    problems = ("any",)
    mu: float

    def loss(self, view: fl.View) -> fl.Term | None:
        """None at mu = 0, so that it costs and changes nothing."""
        if self.mu == 0:
            return None
        moved = subtract(view.params["model"], view.job.shared["model"])
        return view.whole(0.5 * self.mu * squared_norm(moved))


@fl.method("client", part=("mu",))
def fedprox(
    setup: fl.Setup,
    *,
    mu: Annotated[float, fl.AtLeast(0), fl.Search(1e-3, 1.0, log=True), "weight of the proximal term"] = 0.01,
) -> fl.Method:
    """Average models that were held near the global one."""
    return fl.averaging(setup, Proximal(mu))
