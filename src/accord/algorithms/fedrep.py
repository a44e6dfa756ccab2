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

import accord.authoring as fl
from accord.parts.heads import personal_head
from accord.parts.phases import Turns, taking_turns


def head_first(steps: int, head: int, body: int) -> Turns:
    """0 for the head's share of the steps, then 1; all epochs have equally many."""
    return (np.arange(steps) >= steps * head // (head + body)).astype(np.int64)


@fl.method("personal")
def fedrep(
    setup: fl.Setup,
    *,
    head_epochs: Annotated[
        int, fl.AtLeast(1), fl.Search(choices=(1, 5, 10)), "epochs on the head before those on the body"
    ] = 10,
) -> fl.Method:
    """Average bodies that were trained under fitted heads."""
    names, plan = personal_head(setup, "fedrep"), setup.plan
    body = 1 if plan.steps else plan.epochs
    longer = replace(plan, epochs=plan.epochs + head_epochs, steps=plan.steps * (1 + head_epochs))
    order = partial(head_first, head=head_epochs, body=body)
    task = setup.local(fl.SampleLoss(), personal=names, plan=longer)
    local = taking_turns(task, order, {("model", "apart"): 0, ("model", "rest"): 1}, apart=names)
    return setup.method(local, {"model": fl.Mean(), "buffers": fl.Mean()}, has_global_model=False)
