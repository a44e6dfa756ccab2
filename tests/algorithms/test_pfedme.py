"""pFedMe: inner steps, the outer step and the server's against a plain reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from accord.aggregate import EMA, Mean
from accord.algorithms.pfedme import pfedme
from accord.core.plan import Plan
from accord.errors import ConfigError
from support.federation import Given, TinyRun, tiny_data, tiny_model, tiny_setup
from support.personal import COHORTS, FILLED, Params, by_samples, near, norm_model, same_in_processes, tiny
from support.reference import forward, gradient, samples

SETTINGS = {"lam": 3.0, "inner_steps": 2, "personal_lr": 0.05, "decay": 0.01}


def reference_client(run: TinyRun, k: int, start: Params, round: int) -> tuple[Params, Params, float]:
    x, y = samples(run, k)
    w, theta = dict(start), dict(start)
    total = 0.0
    for rows in run.batches(k, "train", round):
        for _ in range(2):
            value = F.cross_entropy(forward(theta, x[rows]), y[rows])
            g = gradient(lambda p, rows=rows: F.cross_entropy(forward(p, x[rows]), y[rows]), theta)
            theta = {n: t - 0.05 * (g[n] + 3.0 * (t - w[n]) + 0.01 * t) for n, t in theta.items()}
        apart = sum(float(((w[n] - theta[n]) ** 2).sum()) for n in w)
        total += len(rows) * (float(value) + 1.5 * apart)
        w = {n: t - 0.1 * 3.0 * (t - theta[n]) for n, t in w.items()}
    return w, theta, total


@pytest.mark.parametrize(("beta", "weight"), [(1.0, "uniform"), (0.6, "uniform"), (2.0, "examples")])
def test_three_rounds_with_partial_participation(beta: float, weight: str, float64: None) -> None:
    run = tiny(pfedme, {**SETTINGS, "beta": beta, "weight": weight}, sampler=Given(*COHORTS))
    w = dict(run.state["model"])
    own: dict[int, Params] = {}
    for round, cohort in enumerate(COHORTS):
        models = []
        for k in cohort:
            model, own[k], _ = reference_client(run, k, w, round)
            models.append(model)
        mean = by_samples(models, cohort, uniform=weight == "uniform")
        w = {n: (1 - beta) * w[n] + beta * mean[n] for n in w}
    run.rounds(3)
    assert near(run.state["model"], w)
    for k, theta in own.items():
        assert near(run.store.get(k)["own"], theta)


def test_the_metric_is_the_envelope(float64: None) -> None:
    run = tiny(pfedme, SETTINGS, sampler=Given([2]))
    expected = reference_client(run, 2, dict(run.state["model"]), 0)[2]
    assert float(run.rounds(1).replies.metric("loss")[0]) == pytest.approx(expected)


def test_one_step_by_hand(float64: None) -> None:
    # One inner step from theta = w: no pull yet, theta = w - eta_p (g + decay w); then w moves eta lam of the way.
    options = {"lam": 5.0, "inner_steps": 1, "personal_lr": 0.2, "decay": 0.0}
    run = tiny(pfedme, options, sampler=Given([1]), plan=Plan(steps=1, batch_size=0))
    w = dict(run.state["model"])
    x, y = samples(run, 1)
    g = gradient(lambda p: F.cross_entropy(forward(p, x), y), w)
    run.rounds(1)
    assert near(run.store.get(1)["own"], {n: w[n] - 0.2 * g[n] for n in w})
    assert near(run.state["model"], {n: w[n] - 0.1 * 5.0 * 0.2 * g[n] for n in w})


def test_personal_accuracy_is_thetas() -> None:
    run = tiny(pfedme, SETTINGS, with_test=True).rounds(2)
    for k, result in zip(run.replies.ids, run.replies.results, strict=True):
        x, y = samples(run, k)
        right = (forward(run.store.get(k)["own"], x).argmax(1) == y).sum()
        assert int(result.metrics["personal_correct"]) == int(right)


def test_batch_norm_statistics_are_thetas() -> None:
    run = tiny(pfedme, SETTINGS, model=norm_model(), plan=FILLED, sampler=Given([0])).rounds(1)
    count = next(t for n, t in run.state["buffers"].items() if n.endswith("num_batches_tracked"))
    assert int(count) == 2 * len(run.batches(0, "train", 0))  # two inner steps a batch


def test_defaults_train_and_processes_give_the_same_bits() -> None:
    assert same_in_processes(pfedme, lr=0.005)
    state = tiny(pfedme).rounds(3).state["model"]
    assert all(torch.isfinite(t).all() for t in state.values())


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"lam": 0.0}, "lam"),
        ({"lam": 20.0}, "diverges"),
        ({"inner_steps": 0}, "inner_steps"),
        ({"inner_steps": 2.5}, "inner_steps"),
        ({"personal_lr": 0.0}, "personal_lr"),
        ({"decay": -1.0}, "decay"),
        ({"beta": 0.0}, "beta"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        pfedme(tiny_setup(tiny_data(), tiny_model()), **settings)


def test_the_servers_rule_and_where_steps_diverge() -> None:
    """beta = 1 is the mean itself, 2 goes twice as far; eta lam = 2 goes to and fro for ever."""
    setup = tiny_setup(tiny_data(), tiny_model(), lr=0.25)
    for weight in ("uniform", "examples"):
        mean = Mean(weight)
        assert pfedme(setup, lam=4.0, weight=weight).aggregate == {"model": mean, "buffers": mean}
        further = pfedme(setup, lam=4.0, beta=2.0, weight=weight).aggregate
        assert further == {"model": EMA(-1.0, mean), "buffers": mean}
    assert pfedme(setup, lam=7.9)
    with pytest.raises(ConfigError, match="is 2, and 2 or more diverges"):
        pfedme(setup, lam=8.0)
