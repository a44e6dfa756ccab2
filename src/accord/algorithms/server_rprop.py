"""Server Rprop: the server uses the direction of the clients' mean change, not its size.

Hartmann, Suh, Komarzewski, Smith, Segall. "Federated learning for ranking browser history suggestions".
arXiv 1911.11807, 2019, after Rprop (Riedmiller, Braun, ICNN 1993).

    client k:  as FedAvg -> w_k
    server:    g = w_t - mean_k w_k                                          uniform weights
               s_i <- clip(1.2 s_i if sign(g_i) repeats, 0.5 s_i if it flips, s_i if either is 0;  1e-7, 0.1)
               w_i <- w_i - s_i sign(g_i)

Sent: as FedAvg. Kept by the server: the step sizes s and the last signs. There, clients send numerical gradients of
a few ranking weights; here g is the mean change of a whole model after local training.
Defaults: s starts at 1e-3. UNRESOLVED: this is the paper FedUFO cites for its baseline "FedRetile"; see algorithm
fedreptile for the other reading. Buffers are averaged uniformly.
"""

from __future__ import annotations

from typing import Annotated

import accord.authoring as fl
from accord.aggregate.reptile import Rprop

STEP = fl.Range(low=Rprop.low, high=Rprop.high)


@fl.method("server")
def server_rprop(
    setup: fl.Setup,
    *,
    step: Annotated[float, STEP, fl.Search(1e-4, 1e-2, log=True), "first step size of every weight"] = 1e-3,
) -> fl.Method:
    """Move every weight by a step of its own in the direction the clients agree on."""
    return setup.method(setup.local(fl.SampleLoss()), {"model": Rprop(step), "buffers": fl.Mean("uniform")})
