"""FedCM: clients step along a mixture of their gradient and the last round's mean direction.

Xu, Wang, Wang, Yao. "FedCM: Federated learning with client-level momentum". arXiv 2106.10874, 2021.

    client k:  w <- w - eta (alpha g + (1 - alpha) D_t)                       tau_k steps from w_t
    server:    D_{t+1} = mean_k (w_t - w_k) / (eta tau_k),   w_{t+1} = w_t + eta_g mean_k (w_k - w_t)

In the first round there is no D and the clients take plain SGD steps. With equal tau, eta_g mean_k (w_k -
w_t) is - eta_g eta tau D_{t+1}, as the paper writes it.

Sent: the model and D down (twice FedAvg), the model up; D says no more than two successive models do. The
clients keep nothing. Defaults: alpha = 0.1, eta_g = 1, uniform mean. alpha = 1 is FedAvg with uniform
weights. Weight decay is added to the mixed direction; as D holds the last round's decay too, it acts up to 1
/ alpha times. With local momentum rho (the paper has none) the clients move further than eta tau g; tau_k is
then the sum of the momentum's weights, (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho), or D would grow
from round to round. local.optimizer_state = "kept" is allowed and counts the same: what a kept velocity adds at the
start of a round is taken for gradients of that round.
"""

from __future__ import annotations

from typing import Annotated

from accord.aggregate import FedAvgM, Mean, ServerOptimizer
from accord.core.algorithm import Aggregator, Method, Setup
from accord.parts import gradients
from accord.parts.bounds import within
from accord.parts.losses import CrossEntropy
from accord.settings import POSITIVE, Search


def fedcm(
    setup: Setup,
    *,
    alpha: gradients.Alpha = 0.1,
    server_lr: Annotated[float, POSITIVE, Search(0.1, 1.0), "eta_g, the server's step on the mean change"] = 1.0,
) -> Method:
    """Average models trained with client-level momentum."""
    within(POSITIVE, server_lr=server_lr)
    mean: Aggregator = Mean("uniform")
    model_rule = mean if server_lr == 1 else ServerOptimizer(FedAvgM(lr=server_lr, beta=0.0), mean)
    local = setup.local(CrossEntropy(), gradients.fedcm(setup, alpha=alpha))
    return setup.method(local, {"model": model_rule, "buffers": mean})
