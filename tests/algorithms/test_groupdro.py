"""GroupDRO: weights that follow the first loss of a round."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from accord.algorithms.fedavg import fedavg
from accord.algorithms.groupdro import GroupWeights, groupdro
from accord.core.keys import Key
from accord.core.types import Replies, Result, World
from accord.errors import ConfigError
from support.baselines import COHORTS, close, descend, labels_loss, make, mean, processes_agree
from support.federation import Given, equal_trees, tiny_data, tiny_model, tiny_setup

T = torch.tensor


def test_three_rounds(float64: None) -> None:
    run = make(groupdro, {"eta": 0.8}, sampler=Given(*COHORTS))
    w, p = dict(run.state["model"]), [1.0] * 4
    for round, cohort in enumerate(COHORTS):
        models = []
        for k in cohort:
            batches, loss = run.batches(k, round=round), labels_loss(run, k)
            p[k] *= math.exp(0.8 * float(loss(w, torch.as_tensor(batches[0]))))
            models.append(descend(w, batches, loss))
        w = mean(models, [p[k] for k in cohort])
    run.rounds(3)
    assert close(run.state["model"], w)
    assert torch.allclose(run.state["groups"]["log_weight"], torch.tensor(p).log())


def test_weights_stay_finite_where_p_itself_would_overflow() -> None:
    run = make(groupdro, {"eta": 2000.0}, lr=1e-3).rounds(3)
    assert run.state["groups"]["log_weight"].max() > 710  # exp overflows double precision above 709.8
    assert all(torch.isfinite(t).all() for t in run.state["model"].values())


def test_eta_zero_is_fedavg_with_uniform_weights() -> None:
    ours = make(groupdro, {"eta": 0.0}, sampler=Given(*COHORTS)).rounds(3)
    plain = make(fedavg, {"weight": "uniform"}, sampler=Given(*COHORTS)).rounds(3)
    assert equal_trees({"m": ours.state["model"]}, {"m": plain.state["model"]})


def test_processes_agree() -> None:
    assert processes_agree(groupdro)


@pytest.mark.parametrize("eta", [-0.1, float("nan")])
def test_bad_settings(eta: float) -> None:
    with pytest.raises(ConfigError, match="eta"):
        groupdro(tiny_setup(tiny_data(), tiny_model()), eta=eta)


def test_weights_are_kept_for_all_clients_and_shared_out_among_those_who_answered() -> None:
    """log p = (1, 0, 5), eta = 2: clients 0 and 1 answer with losses 0 and 1/2, so both have log p = 1 and half a say.

    What nobody sent stays, statistics are averaged alike, and the state that was given is left alone.
    """
    part = GroupWeights(2.0)
    assert part.state(tiny_model(), World(0, [0, 1], np.ones(3), Key(0)))["groups"]["log_weight"].tolist() == [0.0] * 3
    sent = ((2.0, 8.0, 0.0), (4.0, 2.0, 0.5))
    results = tuple(
        Result(
            {"model": {"w": T([w])}, "buffers": {"m": T([m])}, "first_loss": {"loss": T(loss)}},
            {},
            {},
        )
        for w, m, loss in sent
    )
    state = {
        "model": {"w": T([0.0]), "home": T([7.0])},
        "buffers": {"m": T([0.0]), "home": T([9.0])},
        "groups": {"log_weight": T([1.0, 0.0, 5.0], dtype=torch.float64)},
    }
    new = part.update(state, Replies((0, 1), results, T([1, 9]), {}), World(0, [0, 1, 2], np.ones(3), Key(0)))
    assert new["groups"]["log_weight"].tolist() == [1.0, 1.0, 5.0]
    assert state["groups"]["log_weight"].tolist() == [1.0, 0.0, 5.0]
    assert {n: t.tolist() for n, t in new["model"].items()} == {"w": [3.0], "home": [7.0]}
    assert {n: t.tolist() for n, t in new["buffers"].items()} == {"m": [5.0], "home": [9.0]}
