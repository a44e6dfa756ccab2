"""APPLE: the schedule by hand, mixtures, core models and relationships against a plain reference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from accord.algorithms.apple import Rates, Relationships, apple, loosening
from accord.core.keys import Key
from accord.core.optim import SGD
from accord.core.types import World
from accord.errors import ConfigError
from support.federation import SIZES, Given, TinyRun, tiny_data, tiny_model, tiny_setup
from support.personal import COHORTS, FILLED, Params, near, norm_model, same_in_processes, tiny
from support.reference import forward, samples


def mixture(cores: list[Params], p: Tensor) -> Params:
    return {n: sum(p[j] * cores[j][n] for j in range(4)) for n in cores[0]}


def reference_client(
    run: TinyRun, i: int, cores: list[Params], p: Tensor, round: int, pull: float, momentum: float
) -> tuple[Params, Tensor]:
    x, y = samples(run, i)
    start = torch.tensor(SIZES) / sum(SIZES)
    own, velocity = dict(cores[i]), {n: torch.zeros_like(t) for n, t in cores[i].items()}
    for rows in run.batches(i, "train", round):
        leaves = {n: t.clone().requires_grad_() for n, t in own.items()}
        relation = p.clone().requires_grad_()
        everyone = [leaves if j == i else cores[j] for j in range(4)]
        loss = F.cross_entropy(forward(mixture(everyone, relation), x[rows]), y[rows])
        loss = loss + pull * ((relation - start) ** 2).sum()
        *grads, slope = torch.autograd.grad(loss, [*leaves.values(), relation])
        velocity = {n: momentum * velocity[n] + g for n, g in zip(leaves, grads, strict=True)}
        own = {n: t - 0.1 * velocity[n] for n, t in own.items()}
        p = p - 0.03 * slope
    return own, p


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_three_rounds_with_partial_participation(momentum: float, float64: None) -> None:
    options = {"mu": 0.5, "relation_lr": 0.03, "horizon": 0.5, "decay": "cosine"}
    run = tiny(apple, options, sampler=Given(*COHORTS), optimizer=SGD(momentum), rounds=4)  # L = 2
    first = dict(run.model.init()[0])
    cores = [dict(first) for _ in range(4)]
    relations = {k: torch.tensor(SIZES) / sum(SIZES) for k in range(4)}
    for round, cohort in enumerate(COHORTS):
        pull = 0.5 * (1.0, 0.5, 0.0)[round]
        found = {k: reference_client(run, k, cores, relations[k], round, pull, momentum) for k in cohort}
        for k, (own, p) in found.items():
            cores[k], relations[k] = own, p
    run.rounds(3)
    for j in range(4):
        assert near({n: t[j] for n, t in run.state["cores"].items()}, cores[j])
        assert near(run.store.get(j)["relation"], {"relation": relations[j]})
    assert near(run.state["model"], first)  # what clients are installed with, never trained


def test_the_schedule_by_hand() -> None:
    assert loosening(0, 10.0, "exponential", 1e-3) == 1.0
    assert loosening(5, 10.0, "exponential", 1e-4) == pytest.approx(1e-2)
    assert loosening(5, 10.0, "cosine", 1e-3) == pytest.approx(0.5)
    assert loosening(2, 8.0, "cosine", 1e-3) == pytest.approx((math.sqrt(0.5) + 1) / 2)
    assert loosening(10, 10.0, "exponential", 1e-3) == loosening(11, 10.0, "cosine", 1e-3) == 0.0
    assert loosening(0, 0.0, "cosine", 1e-3) == 0.0


def test_relationships_stay_at_p0_without_a_rate_and_under_an_endless_pull() -> None:
    still = tiny(apple, {"relation_lr": 0.0}).rounds(2)
    assert all(
        torch.equal(still.store.get(k)["relation"]["relation"], still.state["share"]["relation"]) for k in (0, 3)
    )
    loose = tiny(apple, {"relation_lr": 0.01, "mu": 0.0}, rounds=10).rounds(2)
    held = tiny(apple, {"relation_lr": 0.01, "mu": 20.0, "horizon": 1.0, "decay": "cosine"}, rounds=10).rounds(2)
    share = loose.state["share"]["relation"]
    apart = [float((run.store.get(1)["relation"]["relation"] - share).norm()) for run in (held, loose)]
    assert 0 < apart[0] < apart[1]


def test_personal_accuracy_is_the_mixtures(float64: None) -> None:
    run = tiny(apple, with_test=True, sampler=Given([0], [2])).rounds(1)
    before = [{n: t[j] for n, t in run.state["cores"].items()} for j in range(4)]
    run.rounds(1)
    (result,) = run.replies.results
    x, y = samples(run, 2)
    before[2] = result.reply["core"]
    model = mixture(before, run.store.get(2)["relation"]["relation"])
    assert int(result.metrics["personal_correct"]) == int((forward(model, x).argmax(1) == y).sum())
    assert set(result.reply) == {"model", "buffers", "core"}
    assert not result.reply["model"]
    assert run.algorithm.predictor(run.state) is None


def test_a_single_client_trains_alone() -> None:
    data = tiny_data(sizes=(8,))
    run = TinyRun(apple(tiny_setup(data, tiny_model())), data=data).rounds(2)
    assert run.state["cores"]["head.bias"].shape == (1, 3)


def test_running_statistics_stay_with_the_client() -> None:
    run = tiny(apple, model=norm_model(), plan=FILLED).rounds(1)
    assert any(n.endswith("running_mean") for n in run.store.get(0)["personal"])
    assert all(not r.reply["buffers"] for r in run.replies.results)


def test_processes_give_the_same_bits() -> None:
    assert same_in_processes(apple)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"mu": -1.0}, "mu"),
        ({"relation_lr": float("nan")}, "relation_lr"),
        ({"horizon": 1.5}, "horizon"),
        ({"eps": 0.0}, "eps"),
        ({"eps": 1.0}, "eps"),
        ({"decay": "linear"}, "decay"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        apple(tiny_setup(tiny_data(), tiny_model()), **settings)


def test_it_is_made_as_it_was_asked_for() -> None:
    """L in rounds; optimizers begin anew with a visit, whatever other methods are told."""
    setup = tiny_setup(tiny_data(), norm_model(), rounds=8, optimizer=SGD(0.5, 0.01), keeps_optimizer=True)
    local = apple(setup, mu=0.3, relation_lr=0.02, horizon=0.5, eps=0.2).local
    assert local.parts[1] == Relationships(0.3, 4.0, "exponential", 0.2)
    assert (local.optimizer, local.keeps_optimizer) == (Rates(SGD(0.5, 0.01), 0.02), False)
    assert (local.optimizer.weight_decay, local.personal) == (0.01, frozenset(norm_model().init()[1]))
    assert "model" not in local.discloses()


def test_clients_that_are_not_asked_have_a_core_model_and_a_share_too() -> None:
    part = Relationships(0.1, 1.0, "exponential", 0.1)
    state = part.state(tiny_model(), World(0, [0, 2], np.array([3, 4, 1]), Key(0)))
    assert state["share"]["relation"].tolist() == [0.375, 0.5, 0.125]
    assert state["cores"]["head.bias"].shape == (3, 3)


def test_the_model_of_a_client_is_its_mixture_with_its_own_statistics(float64: None) -> None:
    run = tiny(apple, model=norm_model(), plan=FILLED, sampler=Given([1, 3])).rounds(2)
    assert run.replies is not None
    result = run.replies.results[1]
    x, _ = samples(run, 3)
    cores = [{n: t[j] for n, t in run.state["cores"].items()} for j in range(4)]
    values = {**mixture(cores, result.memory["relation"]["relation"]), **result.memory["personal"]}
    predictor = run.algorithm.local_predictor(run.state, result)  # type: ignore[attr-defined]
    layers = (nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    module = nn.Sequential(*layers)
    module.load_state_dict({n.removeprefix("module."): t for n, t in values.items()})
    assert torch.allclose(predictor(x).logits, module.eval()(x))
