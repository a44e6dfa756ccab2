"""What a method that was asked for by its settings is made of: every setting arrives where it acts, and no other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from accord.aggregate import EMA, FedAdam, FedAvgM, Mean, ServerOptimizer
from accord.aggregate.nash import Nash
from accord.aggregate.reptile import Rprop
from accord.aggregate.robust import Krum, NormClip, TrimmedMean
from accord.algorithms.dann import Discriminator as NamingClients
from accord.algorithms.ditto import HeldNear
from accord.algorithms.fedbr.components import BiasReduction
from accord.algorithms.fedbuff import Stale
from accord.algorithms.feddecorr import Decorrelation
from accord.algorithms.feddyn import DynamicRegulariser
from accord.algorithms.fedmix import MixedWithMeans, TaylorMix
from accord.algorithms.fedmmd import MMD, OutputL2
from accord.algorithms.fedmtl import TiedTasks
from accord.algorithms.fednova import Normalised
from accord.algorithms.fedntd import NotTrueDistillation
from accord.algorithms.fedprox import Proximal
from accord.algorithms.fedrane.relations import Relations
from accord.algorithms.fedrod import BalancedSoftmax, PersonalHead
from accord.algorithms.fedufo.alignment import Discriminator, UniformAlignment
from accord.algorithms.fedufo.consensus import Divergence, GlobalConsensus, GroupConsensus
from accord.algorithms.fedufo.peers import Peers
from accord.algorithms.fedufo.performance import MeasurePerformance, Performance, Withheld, WorstHalf
from accord.algorithms.fml import MutualLearning
from accord.algorithms.groupdro import GroupWeights
from accord.algorithms.mixup import Mixup
from accord.algorithms.moon import ModelContrast
from accord.algorithms.pfedme import MoreauEnvelope
from accord.algorithms.qffl import FairStep
from accord.algorithms.scaffold import ControlVariates
from accord.algorithms.spherefed import SquaredError
from accord.algorithms.vhl import VirtualHomogeneity
from accord.core.algorithm import Setup
from accord.core.keys import Key
from accord.core.methods import ALGORITHMS
from accord.core.optim import SGD, Schedule
from accord.core.plan import Plan
from accord.core.types import World
from accord.models.around.attention import draw
from accord.parts.heads import FixedHead
from accord.parts.losses import SampleLoss
from accord.parts.mlp import init_mlp
from accord.parts.momentum import ClientMomentum
from accord.parts.projection import DrawnProjection
from support.federation import tiny_data, tiny_model, tiny_setup

LOCAL = SGD(0.5, 0.01)
RATE = Schedule(0.1, "exponential", 0.5)
UNIFORM, SAMPLES = Mean("uniform"), Mean("examples")
ALIKE, BY_SAMPLES = {"model": UNIFORM, "buffers": UNIFORM}, {"model": SAMPLES, "buffers": SAMPLES}
LABELS = SampleLoss()


def setup() -> Setup:
    """Three steps of four samples, momentum and decay, clipping at 0.3, eight rounds, four clients."""
    plan = Plan(steps=3, batch_size=4)
    made = tiny_setup(tiny_data(), tiny_model(), optimizer=LOCAL, plan=plan, rounds=8)
    return replace(made, clip=0.3, schedule=RATE)


ASKED: list[tuple[str, dict[str, Any], tuple[Any, ...], dict[str, Any]]] = [
    ("fedprox", {"mu": 0.3}, (LABELS, Proximal(0.3)), BY_SAMPLES),
    ("mixup", {"alpha": 0.6, "weight": "uniform"}, (LABELS, Mixup(0.6)), ALIKE),
    ("feddecorr", {"beta": 0.2, "form": "fedbr", "weight": "uniform"}, (LABELS, Decorrelation(0.2, "fedbr")), ALIKE),
    ("fedntd", {"beta": 0.5, "tau": 2.0, "weight": "uniform"}, (LABELS, NotTrueDistillation(0.5, 2.0, 12)), ALIKE),
    (
        "fedcm",
        {"alpha": 0.3, "server_lr": 0.5},
        (LABELS, ClientMomentum(RATE, LOCAL, 0.3)),
        {"model": ServerOptimizer(FedAvgM(0.5, 0.0), UNIFORM), "buffers": UNIFORM},
    ),
    (
        "scaffold",
        {"server_lr": 0.5},
        (LABELS, ControlVariates(LOCAL, 4)),
        {"model": ServerOptimizer(FedAvgM(0.5, 0.0), UNIFORM), "buffers": UNIFORM},
    ),
    (
        "fedmmd",
        {"lam": 0.3, "kernel": "dan", "floor": 0.01, "on": "features", "weight": "examples"},
        (LABELS, MMD(0.3, "features", "dan", 0.01)),
        BY_SAMPLES,
    ),
    ("fedl2", {"lam": 0.3, "on": "features", "weight": "examples"}, (LABELS, OutputL2(0.3, "features")), BY_SAMPLES),
    (
        "moon",
        {"mu": 2.0, "tau": 0.3, "projection": 7},
        (LABELS, ModelContrast(2.0, 0.3, 7)),
        {**BY_SAMPLES, "projector": SAMPLES},
    ),
    ("moon", {"mu": 2.0, "tau": 0.3, "projection": 0}, (LABELS, ModelContrast(2.0, 0.3, 0)), BY_SAMPLES),
    (
        "moon",
        {"mu": 2.0, "tau": 0.3, "projection": 7, "classifier": "projection"},
        (LABELS, DrawnProjection(), ModelContrast(2.0, 0.3, 0)),
        BY_SAMPLES,
    ),
    ("qffl", {"q": 3.0}, (LABELS, FairStep(3.0, RATE)), {"buffers": UNIFORM}),
    ("feddyn", {"alpha": 0.3}, (LABELS, DynamicRegulariser(0.3, 4)), {"buffers": UNIFORM}),
    ("feddyn", {"alpha": 0.3, "report": "average"}, (LABELS, DynamicRegulariser(0.3, 4)), {"buffers": UNIFORM}),
    ("fednova", {}, (LABELS,), {"model": Normalised(LOCAL), "buffers": SAMPLES}),
    ("groupdro", {"eta": 0.3}, (GroupWeights(0.3),), {}),
    ("dann", {"lam": 0.7}, (LABELS, NamingClients(0.7)), {**ALIKE, "discriminator": UNIFORM}),
    ("ditto", {"lam": 0.4}, (LABELS, HeldNear(0.4, LOCAL, 0.3)), BY_SAMPLES),
    ("fedrod", {"eps": 1e-3}, (BalancedSoftmax(1e-3), PersonalHead(("head.bias", "head.weight"))), BY_SAMPLES),
    ("fedrod", {"balanced": False}, (LABELS, PersonalHead(("head.bias", "head.weight"))), BY_SAMPLES),
    ("fml", {"alpha": 0.2, "beta": 0.7, "weight": "uniform"}, (MutualLearning(0.2, 0.7),), ALIKE),
    (
        "pfedme",
        {"lam": 3.0, "inner_steps": 2, "personal_lr": 0.05, "decay": 0.02, "beta": 0.5, "weight": "examples"},
        (LABELS, MoreauEnvelope(3.0, 2, 0.05, 0.02)),
        {"model": EMA(0.5, SAMPLES), "buffers": SAMPLES},
    ),
    ("fedmtl", {"form": "mean", "mu": 0.3}, (LABELS, TiedTasks("mean", 0.3, 4)), {}),
    ("fedmix", {"lam": 0.3, "means": 4, "as_published": True}, (TaylorMix(0.3, True),), BY_SAMPLES),
    ("naivemix", {"lam": 0.3, "means": 4}, (LABELS, MixedWithMeans(0.3)), BY_SAMPLES),
    (
        "vhl",
        {
            **{"alpha": 0.5, "contrast": 0.8, "virtual_contrast": 0.3, "tau": 0.4},
            **{"count": 20, "size": 6, "space": "logits"},
        },
        (LABELS, VirtualHomogeneity(0.5, 0.8, 0.3, 0.4, 20, 6, "logits")),
        BY_SAMPLES,
    ),
    ("spherefed", {}, (SquaredError(), FixedHead()), BY_SAMPLES),
    (
        "fedbr",
        {"lam": 0.3, "mu": 2.0, "tau": 0.7, "size": 6, "mixed": 2},
        (LABELS, BiasReduction(0.3, 2.0, 0.7, 6, 2, True, True, LOCAL, 0.3, None)),
        {**ALIKE, "projector": UNIFORM},
    ),
    (
        "fedbr",
        {"extra": ("fedcm: alpha=0.3", "mixup"), "max_step": False},
        (
            *(LABELS, ClientMomentum(RATE, LOCAL, 0.3), Mixup(0.2)),
            BiasReduction(1.0, 0.5, 0.5, 4, 0, True, False, LOCAL, 0.3, None),
        ),
        ALIKE,
    ),
    (
        "fedbr",
        {"extra": ("fedcm: alpha=0.3",), "fedcm_steps": "both"},
        (
            *(LABELS, ClientMomentum(RATE, LOCAL, 0.3)),
            BiasReduction(1.0, 0.5, 0.5, 4, 0, True, True, LOCAL, 0.3, ClientMomentum(RATE, LOCAL, 0.3)),
        ),
        {**ALIKE, "projector": UNIFORM},
    ),
    ("fedbr", {"lam": 0.0, "mu": 0.0, "extra": ("mixup",)}, (LABELS, Mixup(0.2)), ALIKE),
    (
        "compose",
        {"parts": ("mixup", "fedprox", "feddecorr: beta=0.2"), "cgl": 2.0},
        (LABELS, Mixup(0.2), Proximal(0.01), Decorrelation(0.2), GlobalConsensus(2.0, Divergence(), 0)),
        BY_SAMPLES,
    ),
    ("fedbuff", {"server_lr": 0.5, "exponent": 2.0}, (LABELS,), {"model": Stale(0.5, 2.0), "buffers": UNIFORM}),
    ("server_rprop", {"step": 0.02}, (LABELS,), {"model": Rprop(0.02), "buffers": UNIFORM}),
    ("trimmed_mean", {"trim": 0.3}, (LABELS,), {"model": TrimmedMean(0.3), "buffers": TrimmedMean(0.3)}),
    ("krum", {"hostile": 0.3, "keep": 2}, (LABELS,), {"model": Krum(0.3, 2), "buffers": Krum(0.3, 2)}),
    ("norm_clip", {"limit": 2.0}, (LABELS,), {"model": NormClip(2.0), "buffers": SAMPLES}),
    (
        "fedavgm",
        {"server_lr": 0.5, "beta": 0.2},
        (LABELS,),
        {"model": ServerOptimizer(FedAvgM(0.5, 0.2)), "buffers": SAMPLES},
    ),
    *(
        (
            name,
            {"server_lr": 0.5, "beta1": 0.1, "beta2": 0.2, "tau": 0.3},
            (LABELS,),
            {"model": ServerOptimizer(FedAdam(0.5, (0.1, 0.2), 0.3, yogi=name == "fedyogi")), "buffers": SAMPLES},
        )
        for name in ("fedadam", "fedyogi")
    ),
]


@pytest.mark.parametrize(("name", "settings", "parts", "rules"), ASKED, ids=lambda v: v if isinstance(v, str) else "")
def test_a_method_is_made_of(
    name: str, settings: dict[str, Any], parts: tuple[Any, ...], rules: dict[str, Any]
) -> None:
    method: Any = ALGORITHMS[name](setup(), **settings)
    assert method.local.parts == parts
    assert dict(method.aggregate) == rules


RELATIONS = {
    **{"graph": "ridge", "lambda_b": 0.3, "eps": 0.05, "hops": 2, "edge_weight": False, "top_k": 3, "residual": False},
    **{"attention": "gat", "heads": 4, "lambda_cd": 0.6, "tau": 0.4, "similarity": "cosine", "symmetric": False},
}


def test_fedrane_is_made_as_it_was_asked_for() -> None:
    chosen = {"scale": "radius", "power": "uniform", "radius": 3.0, "cap": 1.5}
    judged = {"evaluation": "support", "graph_size": 9, "frozen_head": True}
    method: Any = ALGORITHMS["fedrane"](setup(), **RELATIONS, **chosen, **judged)
    relations = method.local.relations
    expected = {**RELATIONS, "lam": 0.3, "contrast": 0.6}
    for name in ("lambda_b", "lambda_cd"):
        del expected[name]
    assert {name: getattr(relations, name) for name in expected} == expected
    assert isinstance(relations, Relations)
    assert method.local.parts == (LABELS, relations, FixedHead())
    assert (method.local.evaluation, method.local.graph_size) == ("support", 9)
    assert method.local.frozen == {"head.weight"}
    assert dict(method.aggregate) == {"model": Nash(("relations",), "radius", "uniform", 3.0, 1.5), "buffers": SAMPLES}
    averaged: Any = ALGORITHMS["fedrane"](setup(), gne=False)
    assert dict(averaged.aggregate) == {**BY_SAMPLES, "relations": SAMPLES}
    alone: Any = ALGORITHMS["fedrane"](setup(), lra=False, frozen_head=True)
    assert (alone.local.parts, alone.local.frozen) == ((LABELS, FixedHead()), {"head.weight"})
    assert dict(alone.aggregate) == {"model": Nash((), "avg-norm", "examples", 0.0, 2.0), "buffers": SAMPLES}


@pytest.mark.parametrize("performance", ["stale", "fresh"])
def test_fedufo_is_made_as_it_was_asked_for(performance: str) -> None:
    chosen = {"kl": "forward", "kl_reduction": "batch", "cgr_target": "logits", "stage_one_rounds": 2}
    weights = {"uad_weight": 0.4, "cgr_weight": 0.6, "cgl_weight": 0.7}
    shared = {"performance": performance, "performance_share": 0.3, "disc_lr": 0.2, "disc_epochs": 2}
    method: Any = ALGORITHMS["fedufo"](setup(), **chosen, **weights, **shared)
    divergence = Divergence("forward", "batch")
    peers, consensus = Peers(True, "logits", 2, "features"), GlobalConsensus(0.7, divergence, 2)
    disc = Discriminator(rate=0.2, optimizer=SGD(0.9, 0.01), plan=Plan(epochs=2, steps=0, batch_size=4))
    assert method.local.parts == (
        Withheld(0.3),
        LABELS,
        peers,
        UniformAlignment(peers, 0.4, disc, 5),
        GroupConsensus(peers, 0.6, divergence),
        consensus,
        Performance(performance == "stale", 0.3, consensus),
    )
    assert dict(method.aggregate) == {**BY_SAMPLES, "discriminator": SAMPLES}
    assert (method.sampler, method.priors_from, method.grouped) == (WorstHalf(setup().sampler, 2), 0, True)
    assert [type(part).__name__ for part in method.tasks["prior"].parts] == ["SampleLoss", "Withheld", "ClassCounts"]
    if performance == "fresh":
        assert method.measure_from == 2
        asked = method.tasks["performance"]
        assert isinstance(asked, MeasurePerformance)
        assert asked.share == 0.3


def test_what_else_a_method_was_asked_for() -> None:
    def made(name: str, **settings: Any) -> Any:
        return ALGORITHMS[name](setup(), **settings)

    for name in ("fedmix", "naivemix"):
        assert made(name, means=4).tasks["means"].plan == Plan(epochs=1, steps=0, batch_size=4, last_batch="drop")
    buffered = made("fedbuff", concurrency=5, buffer=3, max_staleness=7)
    assert (buffered.concurrency, buffered.buffer, buffered.max_staleness) == (5, 3, 7)
    calibrated = made("spherefed", calibrate="always", ridge=0.2)
    assert (calibrated.calibrate, calibrated.ridge, calibrated.rounds) == ("always", 0.2, 8)
    assert calibrated.local.frozen == {"head.weight"}
    pseudo = made("fedbr", size=6, means=5, balanced=True, every_round=False)
    source = pseudo.pseudo
    assert (source.size, source.means, source.balanced, source.proxy, pseudo.every_round) == (6, 5, True, None, False)
    task = source.tasks()["contribute"]
    assert (task.size, task.means, task.balanced) == (6, 5, True)
    assert made("feddyn", alpha=0.3, report="average").alpha == 0.3
    deeper = made("moon", projection=7, classifier="projection", mu=0.0)
    assert (deeper.model.num_features, deeper.local.parts) == (7, (LABELS, DrawnProjection()))


@pytest.mark.parametrize(
    ("part", "tree", "wanted"),
    [
        (ModelContrast(1.0, 0.5, 7), "projector", lambda key: init_mlp(key.at("projector"), (5, 5, 7))),
        (
            BiasReduction(1.0, 0.5, 0.5, 4, 0, True, True, LOCAL, 0.0),
            "projector",
            lambda key: init_mlp(key.at("projector"), (5, 256, 256, 128)),
        ),
        (NamingClients(0.1), "discriminator", lambda key: init_mlp(key.at("discriminator"), (5, 256, 256, 3))),
        (
            UniformAlignment(Peers(True), 1.0, Discriminator(hidden=6, layers=3), 5),
            "discriminator",
            lambda key: init_mlp(key.at("discriminator", -1, -1), (5, 6, 6, 3)),
        ),
        (Relations(hops=2), "relations", lambda key: draw(key.at("relations"), "dot", 2, 2, 5)),
        (Relations(attention="gat", heads=3), "relations", lambda key: draw(key.at("relations"), "gat", 1, 3, 5)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_server_draws_has_an_address_of_its_own(part: Any, tree: str, wanted: Any) -> None:
    """By the run's seed, whoever may be asked; the second of three clients may not."""
    world = World(0, [0, 2], np.array([3, 4, 1]), Key(7))
    found, expected = part.state(tiny_model(), world)[tree], wanted(Key(7))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], t.to(found[name])) for name, t in expected.items())
