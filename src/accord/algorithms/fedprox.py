"""FedProx: a proximal term keeps local models near the global one.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. "Federated optimization in heterogeneous networks". MLSys 2020,
arXiv 1812.06127.

    client k:  min_w  CE(w) + (mu / 2) |w - w_t|^2
    server:    as FedAvg

Sent: as FedAvg. Defaults: mu = 0.01 (common; 0.001 to 1 are searched). The term is part of the loss, so momentum
acts on it too; mu = 0 is FedAvg.
"""

from __future__ import annotations

from typing import Annotated

from accord.algorithms.fedavg import averaging
from accord.core.algorithm import Method, Setup
from accord.parts.losses import Proximal
from accord.settings import NOT_NEGATIVE, Search


def fedprox(
    setup: Setup,
    *,
    mu: Annotated[float, NOT_NEGATIVE, Search(1e-3, 1.0, log=True), "weight of the proximal term"] = 0.01,
) -> Method:
    """Average models that were held near the global one."""
    return averaging(setup, Proximal(mu))
