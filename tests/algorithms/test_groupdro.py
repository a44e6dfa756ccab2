"""GroupDRO: weights that follow the first loss of a round."""

from __future__ import annotations

import math

import pytest
import torch

from accord.algorithms.fedavg import fedavg
from accord.algorithms.groupdro import groupdro
from accord.errors import ConfigError
from support.baselines import COHORTS, close, descend, labels_loss, make, mean, processes_agree
from support.federation import Given, equal_trees, tiny_data, tiny_model, tiny_setup


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
