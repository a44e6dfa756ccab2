"""FedAvg: federated averaging.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas. "Communication-efficient learning of deep networks from
decentralized data". AISTATS 2017, arXiv 1602.05629.

    client k:  E epochs of SGD on the cross-entropy of its own data, from w_t          -> w_k
    server:    w_{t+1} = sum_k a_k w_k,   a_k = n_k / sum_{j in S_t} n_j  (or 1 / m)

Sent: the model down and up, the number of samples up. Reveals the update and n_k.
Defaults: weights by samples. The optimizer is new in every round, so momentum is not carried over, unless
local.optimizer_state = "kept": then a client's velocity or moments wait with it for its next visit.
"""

from __future__ import annotations

import accord.authoring as fl


@fl.method("client")
def fedavg(setup: fl.Setup, *, weight: fl.Weight = "examples") -> fl.Method:
    """Average the clients' models."""
    return fl.averaging(setup, weight=weight)
