"""q-FedAvg against the sums of the paper, in double precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from accord.algorithms.fedavg import fedavg
from accord.algorithms.qffl import FairStep, qffl
from accord.core.keys import Key
from accord.core.optim import Schedule
from accord.core.types import Replies, Result, World
from accord.errors import ConfigError
from support.baselines import COHORTS, close, descend, labels_loss, make, processes_agree
from support.federation import Given, equal_trees, tiny_data, tiny_model, tiny_setup
from support.reference import forward, samples


@pytest.mark.parametrize("q", [0.5, 1.0, 2.0, 5.0])
def test_three_rounds(q: float, float64: None) -> None:
    run = make(qffl, {"q": q}, sampler=Given(*COHORTS))
    w = dict(run.state["model"])
    L = 1 / 0.1
    for round, cohort in enumerate(COHORTS):
        delta, h = {n: torch.zeros_like(p) for n, p in w.items()}, 0.0
        for k in cohort:
            x, y = samples(run, k)
            loss = float(F.cross_entropy(forward(w, x), y)) + 1e-10
            trained = descend(w, run.batches(k, round=round), labels_loss(run, k))
            d = {n: L * (w[n] - trained[n]) for n in w}
            square = sum(float((v**2).sum()) for v in d.values())
            delta = {n: delta[n] + loss**q * d[n] for n in w}
            h += q * loss ** (q - 1) * square + L * loss**q
        w = {n: w[n] - delta[n] / h for n in w}
    assert close(run.rounds(3).state["model"], w)


def test_the_rate_is_that_of_the_round(float64: None) -> None:
    """With one client w_t - F^q d / (q F^{q-1} d^2 / eta + F^q), eta the decayed rate."""
    data, model = tiny_data(dtype=torch.float64), tiny_model()
    setup = replace(tiny_setup(data, model, sampler=Given([2])), schedule=Schedule(0.1, "exponential", 0.5))
    run = make(lambda _: qffl(setup, q=1.0), data=data, model=model)
    for round, lr in enumerate((0.1, 0.05)):
        w = dict(run.state["model"])
        x, y = samples(run, 2)
        loss = float(F.cross_entropy(forward(w, x), y)) + 1e-10
        trained = descend(w, run.batches(2, round=round), labels_loss(run, 2), lr=lr)
        square = sum(float(((w[n] - trained[n]) ** 2).sum()) for n in w)
        expected = {n: w[n] - loss * (w[n] - trained[n]) / (square / lr + loss) for n in w}
        assert close(run.rounds(1).state["model"], expected)


def test_by_hand() -> None:
    """w = 0, clients at 1 with loss 1 and at -1 with loss 3, q = 1, eta = 1/2.

    d = L (w - w_k) = -2 and 2, D = -2 and 6, h = 4 + 2 and 4 + 6: w = -4 / 16.
    """
    answers = [
        Result({"model": {"w": torch.tensor([v])}, "loss_before": {"loss": torch.tensor(f)}}, {}, {})
        for v, f in ((1.0, 1.0), (-1.0, 3.0))
    ]
    replies = Replies((0, 1), tuple(answers), torch.tensor([1, 100]), {})
    world = World(0, [0, 1], np.array([1, 100]), Key(0))
    new = FairStep(1.0, Schedule(0.5)).update({"model": {"w": torch.zeros(1)}}, replies, world)
    assert new["model"]["w"].tolist() == pytest.approx([-0.25])


def test_clients_without_any_loss_give_a_number(float64: None) -> None:
    """F = 1e-10 in its place, q = 1/2, eta = 1, one client at 1: 1e-5 / (1/2 1e5 + 1e-5) of the way."""
    loss = {"loss": torch.tensor(0.0)}
    answer = Result({"model": {"w": torch.ones(1)}, "loss_before": loss}, {}, {})
    replies = Replies((0,), (answer,), torch.tensor([1]), {})
    new = FairStep(0.5, Schedule(1.0)).update(
        {"model": {"w": torch.zeros(1)}}, replies, World(0, [0], np.ones(1), Key(0))
    )
    assert new["model"]["w"].tolist() == pytest.approx([2e-10], rel=1e-6, abs=0)


def test_the_loss_is_taken_before_training(float64: None) -> None:
    run = make(qffl)
    w = dict(run.state["model"])
    run.rounds(1)
    assert run.replies is not None
    for k, result in enumerate(run.replies.results):
        x, y = samples(run, k)
        assert float(result.reply["loss_before"]["loss"]) == pytest.approx(float(F.cross_entropy(forward(w, x), y)))


def test_q_zero_is_fedavg_with_uniform_weights() -> None:
    ours = make(qffl, {"q": 0.0}, sampler=Given(*COHORTS)).rounds(3)
    assert equal_trees(ours.state, make(fedavg, {"weight": "uniform"}, sampler=Given(*COHORTS)).rounds(3).state)


def test_a_tiny_q_is_close_to_it(float64: None) -> None:
    ours = make(qffl, {"q": 1e-9}).rounds(2)
    assert close(ours.state["model"], make(fedavg, {"weight": "uniform"}).rounds(2).state["model"], 1e-6)


def test_a_rate_of_zero_moves_nothing() -> None:
    run = make(qffl, lr=0.0)
    before = dict(run.state["model"])
    assert close(run.rounds(1).state["model"], before, 1e-6)


def test_processes_agree() -> None:
    assert processes_agree(qffl)


@pytest.mark.parametrize("q", [-1.0, float("inf")])
def test_bad_settings(q: float) -> None:
    with pytest.raises(ConfigError, match="q"):
        qffl(tiny_setup(tiny_data(), tiny_model()), q=q)
