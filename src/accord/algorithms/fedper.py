"""FedPer: the body is federated, the head stays with each client.

Arivazhagan, Aggarwal, Singh, Choudhary. "Federated learning with personalization layers". arXiv 1912.00818, 2019.

    client k:  E epochs on CE of body and own head together -> body_k, head_k
    server:    body <- sum_k a_k body_k

Sent: the body up. Down goes the whole model, with the head as it was drawn: a client starts from it at its first
visit. Kept by the client: its head. The server never sees a trained head and has no global model; the score is the
personal accuracy. Defaults: the head is the last layer, weights by samples.
"""

from __future__ import annotations

from accord.aggregate import Mean
from accord.core.algorithm import Method, Setup
from accord.errors import ConfigError
from accord.parts.losses import CrossEntropy
from accord.parts.personal import bodiless, needs_free_head


def personal_head(setup: Setup, name: str) -> frozenset[str]:
    """The head's names; refused when nothing would be left to federate."""
    if not setup.model.body_names:
        raise ConfigError(
            f"algorithm {name} keeps the head at home, but this network {bodiless(setup.model)}: nothing would be "
            "shared; choose a model with hidden layers (such as 2nn), or algorithm local"
        )
    needs_free_head(setup, name)
    return frozenset(setup.model.head_names)


def fedper(setup: Setup) -> Method:
    """Average the bodies; every client keeps its own head."""
    local = setup.local(CrossEntropy(), personal=personal_head(setup, "fedper"))
    return setup.method(local, {"model": Mean(), "buffers": Mean()})
