"""Ditto: the personal steps by hand and against a plain reference; the global half is FedAvg."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from accord.algorithms.ditto import HeldNear, ditto
from accord.algorithms.fedavg import fedavg
from accord.algorithms.local import local
from accord.core.optim import SGD
from accord.core.plan import Plan
from accord.errors import ConfigError
from support.federation import Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup
from support.personal import COHORTS, FILLED, Params, by_samples, near, norm_model, same_in_processes, tiny
from support.reference import forward, gradient, local_sgd, samples


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_three_rounds_with_partial_participation(momentum: float, float64: None) -> None:
    lam = 0.7
    run = tiny(ditto, {"lam": lam}, sampler=Given(*COHORTS), optimizer=SGD(momentum))
    w = dict(run.state["model"])
    own: dict[int, Params] = {}
    for round, cohort in enumerate(COHORTS):
        models = []
        for k in cohort:
            models.append(local_sgd(run, k, w, round, momentum=momentum)[0])

            def pull(v: Params, w: Params = w) -> torch.Tensor:
                return lam / 2 * sum(((v[n] - w[n]) ** 2).sum() for n in v)

            own[k] = local_sgd(run, k, own.get(k, w), round, momentum=momentum, extra=pull)[0]
        w = by_samples(models, cohort)
    run.rounds(3)
    assert near(run.state["model"], w)
    for k, v in own.items():
        assert near(run.store.get(k)["own"], v)


def test_two_steps_by_hand(float64: None) -> None:
    # v = w_t at the first step, so that is FedAvg's; the second feels lam (v - w_t).
    run = tiny(ditto, {"lam": 2.0}, sampler=Given([1]), plan=Plan(steps=2, batch_size=4))
    w = dict(run.state["model"])
    first, second = run.batches(1, "train", 0)
    x, y = samples(run, 1)

    def slope(at: Params, rows: Any) -> Params:
        return gradient(lambda p: F.cross_entropy(forward(p, x[rows]), y[rows]), at)

    g = slope(w, first)
    v = {n: w[n] - 0.1 * g[n] for n in w}
    g = slope(v, second)
    v = {n: v[n] - 0.1 * (g[n] + 2.0 * (v[n] - w[n])) for n in w}
    assert near(run.rounds(1).store.get(1)["own"], v)


@pytest.mark.parametrize("norm", [False, True])
def test_the_global_half_is_fedavg_bit_for_bit(norm: bool) -> None:
    made = norm_model() if norm else tiny_model()
    pair = [tiny(f, model=made, sampler=Given(*COHORTS), plan=FILLED).rounds(3) for f in (ditto, fedavg)]
    assert equal_trees(pair[0].state, pair[1].state)
    memory = pair[0].store.get(0)
    assert bool(memory["own_buffers"]) == norm
    if norm:  # what they hold, batch by batch, is in test_running_statistics.py
        assert not equal_trees({"b": memory["own_buffers"]}, {"b": pair[0].state["buffers"]})
        assert int(memory["own_buffers"]["module.2.num_batches_tracked"]) == 2 * 2 * 2  # visits, epochs, batches


def test_without_a_pull_the_personal_model_is_local_training(float64: None) -> None:
    free = tiny(ditto, {"lam": 0.0}).rounds(3)
    alone = tiny(local).rounds(3)
    for k in range(4):
        assert near(free.store.get(k)["own"], alone.store.get(k)["personal"])


def test_a_strong_pull_keeps_the_personal_model_nearer() -> None:
    def distance(lam: float) -> float:
        run = tiny(ditto, {"lam": lam}, sampler=Given([0]), plan=Plan(steps=40, batch_size=0)).rounds(1)
        own, start = run.store.get(0)["own"], tiny(ditto).state["model"]
        return float(sum((own[n] - start[n]).square().sum() for n in own))

    assert distance(5.0) < distance(1.0) < distance(0.0)


def test_personal_accuracy_is_the_personal_models() -> None:
    run = tiny(ditto, {"lam": 0.5}, with_test=True).rounds(2)
    for k, result in zip(run.replies.ids, run.replies.results, strict=True):
        x, y = samples(run, k)
        right = (forward(run.store.get(k)["own"], x).argmax(1) == y).sum()
        assert int(result.metrics["personal_correct"]) == int(right)
        assert "own" not in result.reply


def test_clipping_reaches_the_personal_model() -> None:
    data, model = tiny_data(), tiny_model()
    clipped = replace(tiny_setup(data, model, plan=Plan(steps=1, batch_size=4)), clip=1e-3)
    run = TinyRun(ditto(clipped), data=data, model=model).rounds(1)
    own, start = run.store.get(2)["own"], model.init()[0]
    moved = float(sum((own[n] - start[n]).square().sum() for n in own)) ** 0.5
    assert moved == pytest.approx(0.1 * 1e-3, rel=1e-2)


def test_processes_give_the_same_bits() -> None:
    assert same_in_processes(ditto)


@pytest.mark.parametrize("lam", [-0.1, float("nan"), float("inf"), "1", True])
def test_bad_lam_is_refused(lam: Any) -> None:
    with pytest.raises(ConfigError, match="lam"):
        ditto(tiny_setup(tiny_data(), tiny_model()), lam=lam)


def test_the_personal_model_goes_with_its_own_statistics() -> None:
    part = HeldNear(0.5, SGD(), 0.0)
    own, statistics, shared = ({"w": torch.ones(1)} for _ in range(3))
    carry = {"train": {"model": shared}, part.name: {"model": own, "buffers": statistics}, "buffers": shared}
    model, buffers = part.judged(tiny_model(), None, carry)  # type: ignore[arg-type]
    assert (model is own, buffers is statistics) == (True, True)
