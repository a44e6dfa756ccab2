"""FedNova against the paper's sums, the gradients' weights counted by unrolling SGD."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from accord.algorithms.fedavg import fedavg
from accord.algorithms.fednova import Normalised, fednova
from accord.core.optim import SGD, Adam
from accord.core.plan import Plan
from accord.core.types import Replies, Result
from accord.errors import ConfigError
from support.baselines import COHORTS, close, descend, labels_loss, make, processes_agree
from support.federation import SIZES, Given, equal_trees, tiny_data, tiny_model, tiny_setup
from support.reference import Params


def total_weight(steps: int, rho: float, nesterov: bool) -> float:
    """How often each unit gradient was applied, summed: SGD on unit vectors, one coordinate per step."""
    place, velocity = np.zeros(steps), np.zeros(steps)
    for step in range(steps):
        g = np.eye(steps)[step]
        velocity = rho * velocity + g
        place += g + rho * velocity if nesterov else velocity
    return float(place.sum())


@pytest.mark.parametrize(("rho", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_total_weight(rho: float, nesterov: bool) -> None:
    ours = SGD(rho, nesterov=nesterov).effective_steps(torch.arange(9, dtype=torch.float64))
    assert ours.tolist() == pytest.approx([total_weight(tau, rho, nesterov) for tau in range(9)], abs=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_three_rounds(rho: float, float64: None) -> None:
    run = make(fednova, sampler=Given(*COHORTS), optimizer=SGD(rho))
    w = dict(run.state["model"])
    for round, cohort in enumerate(COHORTS):
        share = {k: SIZES[k] / sum(SIZES[j] for j in cohort) for k in cohort}
        change: dict[int, Params] = {}
        norm = {}
        for k in cohort:
            batches = run.batches(k, round=round)
            trained = descend(w, batches, labels_loss(run, k), momentum=rho)
            norm[k] = total_weight(len(batches), rho, False)
            change[k] = {n: (w[n] - trained[n]) / norm[k] for n in w}
        assert len(set(norm.values())) == 2, "the clients must differ in their steps"
        effective = sum(share[k] * norm[k] for k in cohort)
        w = {n: w[n] - effective * sum(share[k] * change[k][n] for k in cohort) for n in w}
    assert close(run.rounds(3).state["model"], w)


def test_by_hand() -> None:
    """Two clients of equal size, 1 and 3 steps, changes 1 and 3 from 0: per step both 1; 2 steps on average: 2.

    FedAvg finds 2 as well; with changes 1 and 6 it finds 3.5, FedNova 2 * (1 + 2) / 2 = 3.
    """
    for second, expected in ((3.0, 2.0), (6.0, 3.0)):
        answers = [
            Result({"t": {"w": torch.tensor([v])}}, {}, {"steps": torch.tensor(s)}) for v, s in ((1.0, 1), (second, 3))
        ]
        replies = Replies((0, 1), tuple(answers), torch.tensor([5, 5]), {})
        assert Normalised(SGD())({"t": {"w": torch.zeros(1)}}, "t", replies)["t"]["w"].tolist() == [expected]


def test_a_client_without_steps_adds_nothing() -> None:
    """Client 0 has fewer samples than a dropped batch: tau = 0. tau_eff = 6/10 * 0 + 4/10 * 2, so 0.4 of the change."""
    answers = [Result({"t": {"w": torch.tensor([v])}}, {}, {"steps": torch.tensor(s)}) for v, s in ((1.0, 0), (6.0, 2))]
    replies = Replies((0, 1), tuple(answers), torch.tensor([6, 4]), {})
    moved = Normalised(SGD())({"t": {"w": torch.ones(1)}}, "t", replies)["t"]["w"]
    # w - tau_eff * p_1 (w - 6) / 2 = 1 + 0.8 * 0.4 * 5 / 2
    assert moved.tolist() == pytest.approx([1.8])


def test_equal_steps_are_fedavg() -> None:
    plan = Plan(steps=3, batch_size=4)
    ours = make(fednova, sampler=Given(*COHORTS), plan=plan).rounds(3)
    assert equal_trees(ours.state, make(fedavg, sampler=Given(*COHORTS), plan=plan).rounds(3).state)


def test_processes_agree() -> None:
    assert processes_agree(fednova)


def test_wants_sgd() -> None:
    with pytest.raises(ConfigError, match="sgd"):
        fednova(tiny_setup(tiny_data(), tiny_model(), optimizer=Adam()))


def test_one_client_alone_is_its_model() -> None:
    answer = Result({"t": {"w": torch.tensor([4.0])}}, {}, {"steps": torch.tensor(3)})
    replies = Replies((2,), (answer,), torch.tensor([5]), {})
    assert Normalised(SGD())({"t": {"w": torch.zeros(1)}}, "t", replies)["t"]["w"].tolist() == [4.0]


def test_counters_and_what_nobody_sent() -> None:
    """Steps 1 and 3, changes 1 and 6: 2 * (1 + 2) / 2. The largest count is kept, and what stays at home stays."""
    answers = [
        Result({"t": {"w": torch.tensor([v]), "n": torch.tensor(n)}}, {}, {"steps": torch.tensor(s)})
        for v, n, s in ((1.0, 7, 1), (6.0, 7, 3))
    ]
    state = {"t": {"w": torch.zeros(1), "n": torch.tensor(2), "home": torch.tensor([4.0])}}
    found = Normalised(SGD())(state, "t", Replies((0, 1), tuple(answers), torch.tensor([5, 5]), {}))["t"]
    assert (found["w"].tolist(), int(found["n"]), found["home"].tolist()) == ([3.0], 7, [4.0])
