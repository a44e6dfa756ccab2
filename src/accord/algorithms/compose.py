"""Compose: FedAvg with parts of other methods, listed by name, and parts of the papers' methods by their weights.

    [algorithm]
    name = "compose"
    parts = ["mixup", "fedcm: alpha=0.2", "feddecorr"]
    cgl = 3
    server_momentum = 0.5

The name may be left out: `accord run --set 'algorithm.parts=["mixup", "feddecorr"]'`.

Each part brings what it has as a method of its own (see the cards of mixup, vhl, fedcm, feddecorr, fedntd,
fedprox): its loss term, its gradient rule, what it sends and what the server keeps. Loss terms are added,
hooks run in the listed order. Without parts it is FedAvg. Refused: a part listed twice, two parts that both
replace the gradient rule, and parts that do not fit the local optimizer.

Of the papers' methods, each off unless asked for, in all combinations:
  cgl              weight of FedUFO's consensus with the received model (KL averaged over samples and classes)
  pseudo           weight of FedBR's first component: as many pseudo-samples as a batch, made once, uniform labels
  orthonormal      unit features and a frozen orthonormal head (SphereFed, FedRANE's code)
  bargain          FedRANE's Nash equilibrium instead of the mean, weights summing to at most 2
  server_momentum  FedAvgM's beta on the change of either

Sent: the model, and what the parts send; with pseudo once 1 / K of a batch of means of ten samples up from every
client, and all of them down. Defaults: weights by samples; those parts' papers that average uniformly (fedcm, fedbr)
are matched with weight = "uniform".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import accord.authoring as fl
from accord.aggregate import FedAvgM, ServerOptimizer
from accord.aggregate.nash import Nash
from accord.algorithms.fedbr import NO_SIZE, FedBR
from accord.algorithms.fedbr.components import BiasReduction
from accord.algorithms.fedbr.pseudo import PseudoData
from accord.algorithms.fedufo.consensus import Divergence, GlobalConsensus
from accord.core.algorithm import Aggregator
from accord.parts.composition import build_parts, check_together
from accord.parts.heads import FixedHead, orthonormal_head

MEANS = 10  # samples in a pseudo-sample, as in FedBR
CAP = 2.0  # FedRANE's default


@fl.method("ends")
def compose(
    setup: fl.Setup,
    *,
    parts: Annotated[tuple[str, ...], 'names of parts, such as "mixup" or, with settings, "fedcm: alpha=0.2"'] = (),
    weight: fl.Weight = "examples",
    cgl: Annotated[float, fl.AtLeast(0), fl.Search(choices=(0.0, 1.0, 3.0)), "weight of FedUFO's CGL"] = 0.0,
    pseudo: Annotated[float, fl.AtLeast(0), fl.Search(choices=(0.0, 0.1, 1.0)), "weight of FedBR's pseudo-data"] = 0.0,
    orthonormal: Annotated[bool, "unit features and a frozen orthonormal head"] = False,
    bargain: Annotated[bool, "aggregate by FedRANE's Nash bargaining"] = False,
    server_momentum: Annotated[
        float, fl.Range(low=0, below=1), fl.Search(choices=(0.0, 0.5, 0.9)), "FedAvgM's beta on the server's step"
    ] = 0.0,
) -> fl.Method:
    """Average models trained with the listed parts."""
    if bargain and setup.num_clients < 2:
        raise fl.ConfigError("algorithm compose: a single client has nobody to bargain with; set bargain = false")
    if pseudo and not setup.plan.batch_size:
        raise fl.ConfigError(NO_SIZE.replace("fedbr", "compose").replace("set algorithm.size, or", "set"))
    if orthonormal:
        setup = replace(setup, model=orthonormal_head(setup.model))
    size = setup.plan.batch_size
    chosen = [
        *build_parts(setup, parts),
        *([BiasReduction(pseudo, 0.0, 1.0, size, 0, False, False, setup.optimizer, setup.clip)] if pseudo else []),
        *([GlobalConsensus(cgl, Divergence(), 0)] if cgl else []),
        *([FixedHead()] if orthonormal else []),
    ]
    check_together(chosen)
    frozen = {"frozen": frozenset(setup.model.head_names)} if orthonormal else {}
    model: Aggregator = Nash(power=weight, cap=CAP) if bargain else fl.Mean(weight)
    if server_momentum:
        model = ServerOptimizer(FedAvgM(beta=server_momentum), model)
    local, rules = setup.local(fl.SampleLoss(), *chosen, **frozen), {"model": model, "buffers": fl.Mean(weight)}
    if not pseudo:
        return setup.method(local, rules)
    source = PseudoData(size, MEANS)
    return setup.method(local, rules, kind=FedBR, extra_tasks=source.tasks(), pseudo=source, every_round=False)
