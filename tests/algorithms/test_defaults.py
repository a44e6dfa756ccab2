"""What a method does when nothing is set: every default, written down by hand from the papers and official codes.

Where neither gives a number the choice is ours, and is here so that it does not change unnoticed.
"""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from accord.aggregate import EMA, FedAdam, FedAvgM, Mean
from accord.aggregate.nash import Nash
from accord.aggregate.reptile import Reptile, Rprop
from accord.aggregate.robust import Krum, Median, NormClip, TrimmedMean
from accord.algorithms import compose, dann, fedmmd, vhl
from accord.algorithms.apple import Rates
from accord.algorithms.fedbr import FedBR, components
from accord.algorithms.fedbr.pseudo import Contribute, PseudoData
from accord.algorithms.fedbuff import Buffered, Stale
from accord.algorithms.feddecorr import Decorrelation
from accord.algorithms.fedfusion import FusionMethod
from accord.algorithms.fedmeta import HandOver, MetaUpdated
from accord.algorithms.fedmmd import MMD
from accord.algorithms.fednova import Normalised
from accord.algorithms.fedntd import NotTrueDistillation
from accord.algorithms.fedrane import RelationalTraining
from accord.algorithms.fedrane.relations import Relations
from accord.algorithms.fedufo import NEVER, FedUFO, performance
from accord.algorithms.fedufo.alignment import Discriminator
from accord.algorithms.fedufo.peers import Peers
from accord.algorithms.mixup import Mixup
from accord.algorithms.spherefed import Calibrated
from accord.core.algorithm import Method
from accord.core.methods import ALGORITHMS
from accord.core.optim import SGD, Adam, Schedule
from accord.core.plan import Plan
from accord.core.task import Part
from accord.models.around import graph
from accord.models.around.heads import SHORTEST
from accord.parts.momentum import ClientMomentum
from accord.settings import settings_of
from accord.settings.bounds import Range, Search
from support.federation import TinyRun, tiny_data, tiny_model, tiny_setup

DISCRIMINATOR: dict[str, Any] = {
    "uad_weight": 1.0,
    "start": "global",
    "disc_classes": "all",
    "disc_home": "server",
    "disc_train": "round",
    "disc_layers": 2,
    "disc_hidden": 0,
    "disc_reads": "features",
    "disc_lr": 0.01,
    "disc_momentum": 0.9,
    "disc_epochs": 1,
}
ADAPTIVE = {"server_lr": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3}
DEFAULTS: dict[str, dict[str, Any]] = {
    # Nguyen et al. 2022: an answer that is t buffers old counts 1 / sqrt(1 + t)
    "fedbuff": {"concurrency": 0, "buffer": 0, "exponent": 0.5, "server_lr": 1.0, "max_staleness": 0},
    # the five papers
    "fedufo": {
        **{"terms": "all", "dynamic": None, "stage_one_rounds": None, "cgr_weight": 1.0, "cgl_weight": 3.0},
        **{"kl": "reverse", "kl_reduction": "mean", "cgr_target": "softmax", "performance": "stale"},
        "performance_share": 0.0,
        **DISCRIMINATOR,
    },
    "feduad": DISCRIMINATOR,
    "fedbr": {
        **{"lam": 1.0, "mu": 0.5, "tau": 0.5, "max_step": True, "projector": True, "every_round": True},
        **{"mixed": 0, "means": 10, "size": 0, "balanced": False, "extra": (), "fedcm_steps": "min", "public": ""},
    },
    "fedmmd": {"lam": 0.1, "kernel": "fixed", "floor": 1e-4, "on": "logits", "weight": "uniform"},
    "fedl2": {"lam": 1e-3, "on": "logits", "weight": "uniform"},
    "fedfusion": {
        **{"operator": "conv", "init": "identity", "lambda0": 0.0, "mu": 0.9, "train_fusion": True},
        **{"evaluate": "prev", "weight": "examples", "cache_mb": 512},
    },
    "fedrane": {
        **{"lra": True, "gne": True, "graph": "official", "lambda_b": 0.1, "lambda_cd": 0.2, "tau": 0.8},
        **{"similarity": "pearson", "symmetric": True, "hops": 1, "edge_weight": True, "top_k": 0, "residual": True},
        **{"eps": 0.01, "evaluation": "batch", "graph_size": 128, "scale": "avg-norm", "power": "examples"},
        **{"radius": 0.0, "cap": 2.0, "frozen_head": False, "attention": "dot", "heads": 2},
    },
    # global model, changes on the client
    "dann": {"lam": 0.1},
    "fedavg": {"weight": "examples"},
    "fedcm": {"alpha": 0.1, "server_lr": 1.0},
    "feddecorr": {"beta": 0.1, "form": "official", "weight": "examples"},
    "feddyn": {"alpha": 0.01, "report": "server"},
    "fednova": {},
    "fedntd": {"beta": 1.0, "tau": 1.0, "weight": "examples"},
    "fedprox": {"mu": 0.01},
    "groupdro": {"eta": 0.01},
    "moon": {"mu": 1.0, "tau": 0.5, "projection": 256, "classifier": "features"},
    "qffl": {"q": 2.0},
    "scaffold": {"server_lr": 1.0},
    "spherefed": {"calibrate": "end", "ridge": 1e-3},
    # mixed or shared data
    "fedmeta": {
        **{"share": 0.1, "meta_lr": 0.01, "meta_epochs": 1, "uga": False, "server_lr": 0.1},
        **{"meta_momentum": 0.0, "meta_decay": 0.0},
    },
    "fedmix": {"lam": 0.1, "means": 10, "as_published": False},
    "mixup": {"alpha": 0.2, "weight": "examples"},
    "naivemix": {"lam": 0.1, "means": 10},
    "vhl": {
        **{"alpha": 1.0, "contrast": 1.0, "virtual_contrast": 0.1, "tau": 0.07, "count": 2000, "size": 32},
        "space": "features",
    },
    # changes on the server
    "fedadam": ADAPTIVE,
    "fedyogi": ADAPTIVE,
    "fedavgm": {"server_lr": 1.0, "beta": 0.9},
    "fedreptile": {"eps": 0.5, "decay": "none"},
    "server_rprop": {"step": 1e-3},
    "krum": {"hostile": 0.2, "keep": 1},
    "median": {},
    "norm_clip": {"limit": 5.0},
    "trimmed_mean": {"trim": 0.1},
    # personal models
    "apple": {"mu": 0.1, "relation_lr": 1e-3, "horizon": 0.1, "decay": "exponential", "eps": 1e-3},
    "ditto": {"lam": 1.0},
    "fedbabu": {"tune_epochs": 5, "tune": "all"},
    "fedbn": {},
    "fedmtl": {"form": "pfllib", "mu": 0.1},
    "fedper": {},
    "fedrep": {"head_epochs": 10},
    "fedrod": {"balanced": True, "eps": 1e-8},
    "fml": {"alpha": 0.5, "beta": 0.5, "weight": "examples"},
    "pfedme": {**{"lam": 15.0, "inner_steps": 5, "personal_lr": 0.09, "decay": 1e-3, "beta": 1.0, "weight": "uniform"}},
    # ends of the scale
    "centralized": {},
    "compose": {
        **{"parts": (), "weight": "examples", "cgl": 0.0, "pseudo": 0.0, "orthonormal": False},
        **{"bargain": False, "server_momentum": 0.0},
    },
    "local": {},
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_defaults_are_the_papers(name: str) -> None:
    """A method that is not in the table has none; one that gains a setting says here what it is left at."""
    assert {key: setting.default for key, setting in settings_of(ALGORITHMS[name]).items()} == DEFAULTS[name]


def test_rules_optimizers_and_plans_left_alone() -> None:
    assert Mean() == Mean("examples")
    assert EMA(0.3).of == Mean("examples")
    assert (FedAvgM().lr, FedAvgM().beta) == (1.0, 0.9)
    adam = FedAdam()
    assert (adam.lr, adam.betas, adam.tau, adam.yogi) == (0.01, (0.9, 0.99), 1e-3, False)
    assert (Reptile().eps, Reptile().decay, Reptile().rounds) == (0.5, "none", 1)
    rprop = Rprop()
    assert (rprop.first, rprop.faster, rprop.slower, rprop.low, rprop.high) == (1e-3, 1.2, 0.5, 1e-7, 0.1)
    assert (Krum().hostile, Krum().keep, Krum().by, TrimmedMean().trim) == (0.2, 1, "model", 0.1)
    assert (SGD().momentum, SGD().weight_decay, SGD().nesterov) == (0.0, 0.0, False)
    assert (Adam().betas, Adam().eps, Adam().weight_decay, Adam().decoupled) == ((0.9, 0.999), 1e-8, 0.0, False)
    rate = Schedule(0.1)
    assert (rate.kind, rate.decay, rate.every, rate.min_lr, rate.rounds) == ("constant", 1.0, 1, 0.0, 1)
    plan, nash = Plan(), Nash()
    assert (plan.epochs, plan.steps, plan.batch_size, plan.last_batch) == (1, 0, 32, "pad")
    assert (nash.also, nash.scale, nash.power, nash.radius) == ((), "avg-norm", "examples", 0.0)
    assert nash.cap == float("inf")


@pytest.mark.parametrize(
    ("part", "method", "renamed"),
    [
        (Decorrelation(), "feddecorr", {}),
        (NotTrueDistillation(), "fedntd", {}),
        (Mixup(), "mixup", {}),
        (ClientMomentum(Schedule(0.1), SGD()), "fedcm", {}),
        (MMD(0.1), "fedmmd", {}),
        (PseudoData(0), "fedbr", {"size": ""}),
        (Relations(), "fedrane", {"contrast": "lambda_cd", "lam": "lambda_b"}),
        (Discriminator(), "fedufo", {"layers": "disc_layers", "hidden": "disc_hidden", "rate": "disc_lr"}),
    ],
    ids=lambda value: type(value).__name__ if is_dataclass(value) else "",
)
def test_a_part_left_alone_is_its_methods(part: Any, method: str, renamed: dict[str, str]) -> None:
    own = {renamed.get(field.name, field.name): getattr(part, field.name) for field in fields(part)}
    common = own.keys() & DEFAULTS[method].keys()
    assert common
    assert {name: own[name] for name in common} == {name: DEFAULTS[method][name] for name in common}


def parts_of(kind: type[Part] = Part) -> set[type[Part]]:
    """All parts of the package; those of tests are others' business."""
    below = {inner for one in kind.__subclasses__() for inner in ({one} | parts_of(one))}
    return {one for one in below if one.__module__.startswith("accord.")}


def test_what_kinds_of_parts_there_are() -> None:
    list(ALGORITHMS)  # all of them are imported
    names = {part.__name__: part for part in parts_of()}
    mixing = {"Mixup", "MeansPart", "MixedWithMeans", "TaylorMix", "BiasReduction", "VirtualHomogeneity"}
    assert {name for name, part in names.items() if part.mixes} == mixing
    assert {name for name, part in names.items() if not part.stacks} == {"TaylorMix", "MMD", "MoreauEnvelope"}
    replacing = {name: part.conflicts for name, part in names.items() if part.conflicts}
    assert replacing == {"ClientMomentum": {"the gradient rule"}, "ControlVariates": {"the gradient rule"}}


def test_what_methods_with_a_server_of_their_own_are_left_at() -> None:
    def left_at(kind: Any) -> dict[str, Any]:
        own = {field.name for field in fields(kind)} - {field.name for field in fields(Method)}
        return {f.name: f.default for f in fields(kind) if f.name in own and f.default is not MISSING}

    assert left_at(Buffered) == {"concurrency": 0, "buffer": 0, "max_staleness": 0}
    assert left_at(Calibrated) == left_at(MetaUpdated) == {}, "their factories say all of it"
    assert left_at(FusionMethod) == {"evaluate": "prev"}
    pseudo = left_at(FedBR)
    assert (pseudo["every_round"], pseudo["pseudo"].size, pseudo["pseudo"].proxy) == (True, 0, None)
    assert left_at(FedUFO) == {"grouped": False, "priors_from": NEVER, "measure_from": NEVER}
    assert (Contribute(1, 2, False).plan, HandOver(0.1).plan) == (Plan(0, 1, 1), Plan(1, 0, 0))
    assert {f.name: f.default for f in fields(Peers) if f.default is not MISSING} == {
        "target": None,
        "target_from": 0,
        "reads": "features",
    }
    training = {f.name: f.default for f in fields(RelationalTraining)}
    assert training["graph_size"] == 128
    assert NotTrueDistillation().reach == 0
    drawn = inspect.signature(Discriminator.draw).parameters
    assert (drawn["round"].default, drawn["client"].default) == (-1, -1), "the server's: no round's and no client's"
    assert Rates.stacks is False, "its two kinds of steps are told apart by the names of a tree"


SHARE, HALF = Range(low=0, below=1), Range(low=0, below=0.5)


@pytest.mark.parametrize(
    ("method", "setting", "bounds", "search"),
    [
        ("apple", "eps", Range(above=0, below=1), None),  # 1 would not decay
        ("fedmix", "lam", SHARE, (0.05, 0.1, 0.2)),
        ("fedmix", "means", Range(low=1), (5, 10, 20)),
        ("fedreptile", "eps", Range(above=0, high=1), None),
        ("krum", "hostile", HALF, None),  # a majority must be honest
        ("naivemix", "lam", SHARE, (0.05, 0.1, 0.2)),
        ("naivemix", "means", Range(low=1), (5, 10, 20)),
        ("server_rprop", "step", Range(low=1e-7, high=0.1), None),
        ("trimmed_mean", "trim", HALF, None),  # both ends are cut
    ],
)
def test_where_a_setting_may_lie(method: str, setting: str, bounds: Range, search: tuple[float, ...] | None) -> None:
    said = settings_of(ALGORITHMS[method])[setting]
    assert said.bounds == bounds
    if search is not None:
        assert said.search == Search(choices=search)


def test_numbers_that_are_no_settings() -> None:
    assert (compose.MEANS, compose.CAP) == (10, 2.0)  # FedBR's and FedRANE's own
    assert components.PROJECTOR == (256, 256, 128)  # FedBR, section 5 and appendix
    assert dann.HIDDEN == (256, 256)
    fine, coarse = [10.0**power for power in range(-6, 0)], [10.0**power for power in range(2, 7)]
    assert list(fedmmd.FIXED_WIDTHS) == pytest.approx([*fine, 1, 5, 10, 15, 20, 25, 30, 35, *coarse])
    assert fedmmd.RELATIVE_WIDTHS == (1 / 8, 1 / 4, 1 / 2, 1, 2)  # 2^k, k = -3..1 (DAN)
    assert graph.ITERATIONS == 5
    assert performance.UNKNOWN == -1.0  # below every accuracy
    # ours
    assert (vhl.CHANNELS, vhl.SIDE, vhl.LAYERS, vhl.SPREAD) == (16, 4, 3, 0.5)
    assert SHORTEST == 1e-4


@pytest.mark.parametrize(
    ("method", "setting", "beside"),
    [
        ("apple", "mu", {"relation_lr": 0.05, "horizon": 0.1}),  # of ten rounds: the first
        ("compose", "cgl", {}),
        ("compose", "pseudo", {}),
        ("dann", "lam", {}),
        ("ditto", "lam", {}),
        ("fedbr", "lam", {"mu": 0.0}),
        ("fedbr", "mu", {"lam": 0.0}),
        ("feddecorr", "beta", {}),
        ("fedl2", "lam", {}),
        ("fedmmd", "lam", {"floor": 0.0}),
        ("fedmtl", "mu", {"form": "mean"}),
        ("fedntd", "beta", {}),
        ("fedprox", "mu", {}),
        ("fedrane", "lambda_cd", {"gne": False}),
        ("mixup", "alpha", {}),
        ("moon", "mu", {"projection": 8}),
        ("qffl", "q", {}),
    ],
)
def test_a_weight_of_one_acts(method: str, setting: str, beside: dict[str, Any]) -> None:
    """Only a weight of 0 switches a term off: 1 is not the same, after two rounds, on the server or at the clients."""

    def ends(value: float) -> dict[tuple[str, str], Tensor]:
        run = TinyRun(method, {**beside, setting: value}, rounds=10).rounds(2)
        kept = {**(run.store.get(0) or {}), "model": run.state["model"]}
        return {(tree, name): t for tree, leaves in kept.items() for name, t in leaves.items()}

    off, on = ends(0.0), ends(1.0)
    assert not all(torch.allclose(off[name], on[name], atol=1e-4) for name in off.keys() & on.keys())


UNIFORM, SAMPLES = Mean("uniform"), Mean("examples")
BY_SAMPLES = {"model": SAMPLES, "buffers": SAMPLES}
ALIKE = {"model": UNIFORM, "buffers": UNIFORM}
RULES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(["fedavg", "fedprox", "feddecorr", "fedntd", "mixup", "fedmix", "naivemix", "fedmeta"], BY_SAMPLES),
    **dict.fromkeys(["ditto", "fedbabu", "fedper", "fedrep", "fedrod", "fml", "vhl", "compose"], BY_SAMPLES),
    **dict.fromkeys(["spherefed", "centralized"], BY_SAMPLES),
    **dict.fromkeys(["fedmmd", "fedl2", "fedcm", "scaffold", "pfedme"], ALIKE),
    **{name: {} for name in ("local", "apple", "fedmtl", "groupdro")},
    "moon": {**BY_SAMPLES, "projector": SAMPLES},
    "dann": {**ALIKE, "discriminator": UNIFORM},
    "fedbr": {**ALIKE, "projector": UNIFORM},
    "feddyn": {"buffers": UNIFORM},
    "qffl": {"buffers": UNIFORM},
    "fednova": {"model": Normalised(SGD()), "buffers": SAMPLES},
    "fedbuff": {"model": Stale(1.0, 0.5), "buffers": UNIFORM},
    "fedreptile": {"model": Reptile(0.5, "none", 3), "buffers": UNIFORM},
    "server_rprop": {"model": Rprop(1e-3), "buffers": UNIFORM},
    "median": {"model": Median(), "buffers": Median()},
    "trimmed_mean": {"model": TrimmedMean(0.1), "buffers": TrimmedMean(0.1)},
    "krum": {"model": Krum(0.2, 1), "buffers": Krum(0.2, 1)},
    "norm_clip": {"model": NormClip(5.0), "buffers": SAMPLES},
}


@pytest.mark.parametrize("name", RULES)
def test_how_a_method_left_alone_aggregates(name: str) -> None:
    """By samples or all alike, as its card says, in a run of three rounds."""
    method: Any = ALGORITHMS[name](tiny_setup(tiny_data(), tiny_model(), rounds=3))
    assert dict(method.aggregate) == RULES[name]
