"""MOON against a loop written from its formula, in double precision."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from accord.algorithms.fedavg import fedavg
from accord.algorithms.moon import moon
from accord.core.model import Model
from accord.core.optim import SGD
from accord.core.plan import Plan
from accord.errors import ConfigError
from accord.models import adapt
from support.baselines import (
    COHORTS,
    close,
    descend,
    features,
    make,
    mean,
    prefixed,
    processes_agree,
    tree_of,
)
from support.federation import SIZES, Everyone, Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup
from support.reference import Params, forward, samples

SETTINGS = {"mu": 2.0, "tau": 0.4, "projection": 7}


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """0 where every unit is dead and a feature vector is 0."""
    square = (a.square().sum(1) * b.square().sum(1)).clamp(min=1e-30)
    return (a * b).sum(1) / square.sqrt()


def project(projector: Params, f: Tensor) -> Tensor:
    if not projector:
        return f
    hidden = torch.relu(f @ projector["0.weight"].T + projector["0.bias"])
    return hidden @ projector["1.weight"].T + projector["1.bias"]


def train(run: TinyRun, k: int, received: Params, previous: Params, round: int, mu: float, tau: float) -> Params:
    """One visit: leaves `model/...` and `projector/...`, the contrast as -log of a share."""
    x, y = samples(run, k)

    def z(p: Params, index: Tensor) -> Tensor:
        return project(tree_of(p, "projector/"), features(tree_of(p, "model/"), x[index]))

    def loss(p: Params, index: Tensor) -> Tensor:
        near = (cosines(z(p, index), z(received, index)) / tau).exp()
        far = (cosines(z(p, index), z(previous, index)) / tau).exp()
        ce = F.cross_entropy(forward(tree_of(p, "model/"), x[index]), y[index])
        return ce - mu * (near / (near + far)).log().mean()

    return descend(received, run.batches(k, round=round), loss, momentum=0.5)


@pytest.mark.parametrize("projection", [7, 0])
def test_three_rounds(projection: int, float64: None) -> None:
    run = make(moon, {**SETTINGS, "projection": projection}, sampler=Given(*COHORTS), optimizer=SGD(0.5))
    assert ("projector" in run.state) == bool(projection)
    w = prefixed("model/", run.state["model"]) | prefixed("projector/", run.state.get("projector", {}))
    previous: dict[int, Params] = {}
    for round, cohort in enumerate(COHORTS):
        trained = {k: train(run, k, w, previous.get(k, w), round, 2.0, 0.4) for k in cohort}
        previous |= trained
        w = mean([trained[k] for k in cohort], [SIZES[k] for k in cohort])
    run.rounds(3)
    assert close(run.state["model"], tree_of(w, "model/"))
    assert close(run.state.get("projector", {}), tree_of(w, "projector/"))
    for k in range(4):
        kept = run.store.get(k) or {}
        assert close(kept["previous"], tree_of(previous[k], "model/"))
        assert close(kept.get("previous_projector", {}), tree_of(previous[k], "projector/"))


def deep(p: Params, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and projection of the network of the paper: body, two layers, classifier."""
    f = features(tree_of(p, "body."), x)
    hidden = torch.relu(f @ p["projector.0.weight"].T + p["projector.0.bias"])
    z = hidden @ p["projector.2.weight"].T + p["projector.2.bias"]
    return z @ p["head.weight"].T + p["head.bias"], z


def test_three_rounds_with_the_classifier_on_the_projection(float64: None) -> None:
    settings = {**SETTINGS, "classifier": "projection"}
    run = make(moon, settings, sampler=Given(*COHORTS), optimizer=SGD(0.5))
    assert set(run.state) == {"buffers", "model"}
    w = dict(run.state["model"])
    assert {n: tuple(t.shape) for n, t in w.items()} == {
        **{"body.neck.0.weight": (5, 64), "body.neck.0.bias": (5,), "head.weight": (3, 7), "head.bias": (3,)},
        **{"projector.0.weight": (5, 5), "projector.0.bias": (5,)},
        **{"projector.2.weight": (7, 5), "projector.2.bias": (7,)},
    }
    assert all(bool((w[n] != 0).all()) for n in w if "head" in n or "projector" in n)
    previous: dict[int, Params] = {}

    def train(k: int, round: int) -> Params:
        x, y = samples(run, k)
        received, old = w, previous.get(k, w)

        def loss(p: Params, index: Tensor) -> Tensor:
            logits, z = deep(p, x[index])
            near = (cosines(z, deep(received, x[index])[1]) / 0.4).exp()
            far = (cosines(z, deep(old, x[index])[1]) / 0.4).exp()
            return F.cross_entropy(logits, y[index]) - 2.0 * (near / (near + far)).log().mean()

        return descend(received, run.batches(k, round=round), loss, momentum=0.5)

    for round, cohort in enumerate(COHORTS):
        trained = {k: train(k, round) for k in cohort}
        previous |= trained
        w = mean([trained[k] for k in cohort], [SIZES[k] for k in cohort])
    run.rounds(3)
    assert close(run.state["model"], w)
    exported = run.algorithm.export(run.state)
    assert exported is not None
    x, _ = samples(run, 0)
    assert torch.allclose(exported(x), deep(w, x)[0])


def test_its_layers_follow_the_seed_and_mu_zero_is_the_deeper_network_alone() -> None:
    settings = {**SETTINGS, "classifier": "projection"}
    first, again, other = (make(moon, settings, seed=seed).state["model"] for seed in (0, 0, 1))
    assert equal_trees({"m": first}, {"m": again})
    assert not torch.equal(first["head.weight"], other["head.weight"])
    plain = make(moon, {**settings, "mu": 0.0}).rounds(2)
    assert plain.state["model"].keys() == first.keys()
    assert plain.store.get(0) is None
    assert processes_agree(moon, settings)


def test_the_projection_stands_in_for_the_head_of_an_adapted_network() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 3))
    model = Model(adapt(network, "3", example=torch.zeros(2, 1, 8, 8)))
    run = make(moon, {**SETTINGS, "classifier": "projection"}, model=model).rounds(1)
    assert not [name for name in run.state["model"] if name.startswith("body.module.3")]
    assert run.state["model"]["head.weight"].shape == (3, 7)


def test_a_projection_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="projection = 0"):
        moon(tiny_setup(tiny_data(), tiny_model()), projection=0, classifier="projection")
    model = tiny_model()
    model.network.head.requires_grad_(False)
    frozen = tiny_setup(tiny_data(), Model(model.network))
    with pytest.raises(ConfigError, match="frozen"):
        moon(frozen, classifier="projection")


def test_the_previous_model_is_renewed_at_every_visit() -> None:
    run = make(moon, SETTINGS).rounds(1)
    first = run.store.get(1)
    assert first is not None
    run.rounds(1)
    second = run.store.get(1)
    assert second is not None
    assert run.replies is not None
    assert not equal_trees(first, second)
    assert equal_trees({"m": second["previous"]}, {"m": run.replies.results[1].reply["model"]})
    assert equal_trees({"p": second["previous_projector"]}, {"p": run.replies.results[1].reply["projector"]})


def test_a_first_step_feels_no_contrast(float64: None) -> None:
    """At a first visit both frozen models are the received one: the two cosines cancel."""
    plan = Plan(steps=1, batch_size=4)
    ours, plain = make(moon, SETTINGS, plan=plan).rounds(1), make(fedavg, plan=plan).rounds(1)
    assert close(ours.state["model"], plain.state["model"], 1e-12)
    assert run_loss(ours) == pytest.approx(run_loss(plain) + 2.0 * math.log(2))


def run_loss(run: TinyRun) -> float:
    assert run.replies is not None
    return float(run.replies.metric("loss").sum() / run.replies.metric("seen").sum())


def test_batch_norm_statistics_of_the_previous_model_are_kept() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    model = Model(adapt(network, "4", example=torch.zeros(2, 1, 8, 8)))
    run = make(moon, SETTINGS, model=model, plan=Plan(epochs=1, batch_size=3)).rounds(1)
    kept = run.store.get(0)
    assert kept is not None
    assert run.replies is not None
    assert equal_trees({"b": kept["previous_buffers"]}, {"b": run.replies.results[0].reply["buffers"]})


def test_mu_zero_is_fedavg() -> None:
    ours = make(moon, {"mu": 0.0}, sampler=Given(*COHORTS)).rounds(3)
    assert equal_trees(ours.state, make(fedavg, sampler=Given(*COHORTS)).rounds(3).state)


def test_processes_agree() -> None:
    assert processes_agree(moon, SETTINGS)


def test_bad_settings() -> None:
    setup = tiny_setup(tiny_data(), tiny_model())
    for settings, word in (
        ({"mu": -1.0}, "mu"),
        ({"mu": math.nan}, "mu"),
        ({"tau": 0.0}, "tau"),
        ({"projection": -1}, "projection"),
        ({"projection": 2.5}, "projection"),
    ):
        with pytest.raises(ConfigError, match=word):
            moon(setup, **settings)  # type: ignore[arg-type]


def test_everyone_and_personal_accuracy() -> None:
    run = make(moon, SETTINGS, sampler=Everyone(), with_test=True).rounds(2)
    assert run.replies is not None
    assert (run.replies.metric("personal_examples") == torch.tensor(SIZES)).all()


def test_features_themselves_can_be_contrasted_whatever_their_number() -> None:
    model = tiny_model()
    model.num_features = 0
    setup = tiny_setup(tiny_data(), model)
    with pytest.raises(ConfigError, match="cannot size its projector"):
        moon(setup)
    assert moon(setup, projection=0).local.parts[1].projection == 0
    assert moon(setup, mu=0.0)
