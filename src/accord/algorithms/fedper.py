"""FedPer: the body is federated, the head stays with each client.

Arivazhagan, Aggarwal, Singh, Choudhary. "Federated learning with personalization layers". arXiv 1912.00818, 2019.

    client k:  E epochs on CE of body and own head together -> body_k, head_k
    server:    body <- sum_k a_k body_k

Sent: the body up. Down goes the whole model, with the head as it was drawn: a client starts from it at its first
visit. Kept by the client: its head. The server never sees a trained head and has no global model; the score is the
personal accuracy. Defaults: the head is the last layer, weights by samples.
"""

from __future__ import annotations

import accord.authoring as fl
from accord.parts.heads import personal_head


@fl.method("personal")
def fedper(setup: fl.Setup) -> fl.Method:
    """Average the bodies; every client keeps its own head."""
    local = setup.local(fl.SampleLoss(), personal=personal_head(setup, "fedper"))
    return setup.method(local, {"model": fl.Mean(), "buffers": fl.Mean()}, has_global_model=False)
