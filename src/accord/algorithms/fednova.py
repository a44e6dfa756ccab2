"""FedNova: clients that take more local steps do not pull the average further.

Wang, Liu, Liang, Joshi, Poor. "Tackling the objective inconsistency problem in heterogeneous federated
optimization". NeurIPS 2020, arXiv 2007.07481.

    client k:  tau_k local steps as FedAvg -> w_k
               |a_k| = tau_k,  with momentum rho  (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho),
                        with Nesterov's form  tau + rho |a_k of momentum|: the total weight of its gradients
    server:    w_{t+1} = w_t - tau_eff sum_k p_k (w_t - w_k) / |a_k|,   tau_eff = sum_k p_k |a_k|,  p_k = n_k / sum n

Sent: as FedAvg, and tau_k up. Needs SGD. Defaults: none to set. When all clients take equally many steps it is
FedAvg, to the bit. A client that took no step adds nothing. Buffers are averaged by samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

import accord.authoring as fl
from accord.core.optim import SGD


@dataclass(frozen=True)
class Normalised:
    """The mean of the clients' changes per step, times the mean number of steps."""

    optimizer: SGD
    needs_each: ClassVar[str] = ""  # the weights follow from numbers of samples and of steps

    def state(self, tree: str, value: fl.Tree) -> fl.Trees:
        return {}

    def __call__(self, state: fl.State, tree: str, replies: fl.Replies) -> fl.Trees:
        """w_t (1 - sum_k c_k) + sum_k c_k w_k with c_k = p_k tau_eff / |a_k|."""
        norms = self.optimizer.effective_steps(replies.metric("steps"))
        if bool((norms == norms[0]).all()):
            return fl.Mean()(state, tree, replies)
        by_samples = replies.weights()
        share = torch.where(norms > 0, by_samples * (by_samples @ norms) / norms.clamp(min=1e-12), 0.0)
        old, pulled = state[tree], replies.mean(tree, share)
        stays = 1 - float(share.sum())
        moved = {n: stays * old[n] + t if t.is_floating_point() else t for n, t in pulled.items()}
        return {tree: {**old, **moved}}


@fl.method("client")
def fednova(setup: fl.Setup) -> fl.Method:
    """Average the clients' changes per step instead of their models."""
    optimizer = setup.optimizer
    if not isinstance(optimizer, SGD):
        raise fl.ConfigError(
            "algorithm fednova needs local.optimizer = 'sgd': it counts how often a gradient was applied"
        )
    if setup.keeps_optimizer:
        raise fl.ConfigError(
            "algorithm fednova needs local.optimizer_state = 'fresh': it counts from the round's start"
        )
    return setup.method(setup.local(fl.SampleLoss()), {"model": Normalised(optimizer), "buffers": fl.Mean()})
