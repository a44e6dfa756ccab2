"""FedRep: a shared body; each client first fits its own head to it, then moves the body a little.

Collins, Hassani, Mokhtari, Shakkottai. "Exploiting shared representations for personalized federated learning".
ICML 2021, arXiv 2102.07078.

    client k:  head_epochs passes:   head_k <- step on CE, the body held fixed
               local.epochs passes:  body   <- step on CE, the head held fixed -> body_k
    server:    body <- sum_k a_k body_k

Sent: the body up; down the whole model, with the head as it was drawn (used at a client's first visit). Kept by the
client: its head. The server never sees a trained head and has no global model; the score is the personal accuracy.
Defaults: 10 epochs on the head, which with local.epochs = 1 is the paper's setting; its local work is added to that
of the body, so a round is longer than FedAvg's. With local.steps = S the body gets S steps and the head
head_epochs times S. What is held fixed does not move at all (no momentum, no weight decay), each phase has an
optimizer state of its own, and running statistics of batch norm follow both phases. Weights by samples.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

import numpy as np

from accord.aggregate import Mean
from accord.algorithms.fedper import personal_head
from accord.core.algorithm import Method, Setup
from accord.parts.bounds import whole
from accord.parts.losses import CrossEntropy
from accord.parts.turns import Turns, taking_turns
from accord.settings import AtLeast, Search


def head_first(steps: int, head: int, body: int) -> Turns:
    """0 for the head's share of the steps, then 1; all epochs have equally many."""
    return (np.arange(steps) >= steps * head // (head + body)).astype(np.int64)


def fedrep(
    setup: Setup,
    *,
    head_epochs: Annotated[
        int, AtLeast(1), Search(choices=(1, 5, 10)), "epochs on the head before those on the body"
    ] = 10,
) -> Method:
    """Average bodies that were trained under fitted heads."""
    whole(AtLeast(1), head_epochs=head_epochs)
    names, plan = personal_head(setup, "fedrep"), setup.plan
    body = 1 if plan.steps else plan.epochs
    longer = replace(plan, epochs=plan.epochs + head_epochs, steps=plan.steps * (1 + head_epochs))
    order = partial(head_first, head=head_epochs, body=body)
    task = setup.local(CrossEntropy(), personal=names, plan=longer)
    local = taking_turns(task, order, {("model", "apart"): 0, ("model", "rest"): 1}, apart=names)
    return setup.method(local, {"model": Mean(), "buffers": Mean()})
