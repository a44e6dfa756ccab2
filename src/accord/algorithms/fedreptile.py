"""FedReptile: the server moves only part of the way to the clients' mean.

UNRESOLVED: the FedUFO paper compares with "FedRetile" (also "FedRtile") and cites Hartmann et al., "Federated
learning for ranking browser history suggestions", arXiv 1911.11807. That paper defines no method of the name; it
trains with Rprop on the server. The name reads like Reptile (Nichol, Achiam, Schulman, arXiv 1803.02999), whose
outer step this is, on the clients' models; the cited paper's rule is algorithm server_rprop.

    client k:  as FedAvg -> w_k
    server:    w_{t+1} = w_t + eps (mean_k w_k - w_t)       uniform weights

Sent: as FedAvg. Defaults: eps = 0.5, constant; decay = "linear" takes it from eps to 0 over the rounds of the run,
as Reptile does from 1. eps = 1 is FedAvg with uniform weights. Buffers are averaged uniformly.
"""

from __future__ import annotations

from typing import Annotated

import accord.authoring as fl
from accord.aggregate.reptile import Decay, Reptile

SHARE = fl.Range(above=0, high=1)


@fl.method("server")
def fedreptile(
    setup: fl.Setup,
    *,
    eps: Annotated[float, SHARE, fl.Search(0.1, 1.0), "share of the way to the mean"] = 0.5,
    decay: Annotated[Decay, "constant, or down to 0 over the rounds of the run"] = "none",
) -> fl.Method:
    """Move the model part of the way to the clients' mean."""
    rule = Reptile(eps, decay, max(setup.rounds, 1))
    return setup.method(setup.local(fl.SampleLoss()), {"model": rule, "buffers": fl.Mean("uniform")})
