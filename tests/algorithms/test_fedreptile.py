"""The damped server step and its decay."""

from __future__ import annotations

import pytest
import torch

from accord.aggregate.reptile import Reptile
from accord.algorithms.fedavg import fedavg
from accord.algorithms.fedreptile import fedreptile
from accord.core.types import Replies, Result
from accord.errors import ConfigError
from support.baselines import COHORTS, close, descend, labels_loss, make, mean, processes_agree
from support.federation import Given, equal_trees, tiny_data, tiny_model, tiny_setup


@pytest.mark.parametrize("decay", ["none", "linear"])
def test_three_rounds(decay: str, float64: None) -> None:
    run = make(fedreptile, {"eps": 0.6, "decay": decay}, sampler=Given(*COHORTS), rounds=4)
    w = dict(run.state["model"])
    for round, cohort in enumerate(COHORTS):
        average = mean([descend(w, run.batches(k, round=round), labels_loss(run, k)) for k in cohort])
        eps = 0.6 if decay == "none" else 0.6 * (1 - round / 4)
        w = {n: w[n] + eps * (average[n] - w[n]) for n in w}
    assert close(run.rounds(3).state["model"], w)


def test_by_hand() -> None:
    """w = 0, clients 2 and 4: their mean is 3, half of the way 1.5; counters keep the largest."""
    answers = [Result({"t": {"w": torch.tensor([v]), "n": torch.tensor(c)}}, {}, {}) for v, c in ((2.0, 5), (4.0, 3))]
    replies = Replies((0, 1), tuple(answers), torch.tensor([1, 9]), {})
    new = Reptile(0.5)({"t": {"w": torch.zeros(1), "n": torch.tensor(1)}}, "t", replies)
    assert new["t"]["w"].tolist() == [1.5]
    assert new["t"]["n"] == 5


def test_the_last_round_of_a_linear_decay_and_beyond_never_moves_back() -> None:
    run = make(fedreptile, {"eps": 1.0, "decay": "linear"}, rounds=2).rounds(2)
    there = run.state["model"]
    assert run.state["model.rounds"]["done"] == 2
    assert equal_trees({"m": run.rounds(1).state["model"]}, {"m": there})


def test_eps_one_is_fedavg_with_uniform_weights() -> None:
    ours = make(fedreptile, {"eps": 1.0}, sampler=Given(*COHORTS)).rounds(3)
    assert equal_trees(ours.state, make(fedavg, {"weight": "uniform"}, sampler=Given(*COHORTS)).rounds(3).state)


def test_processes_agree() -> None:
    assert processes_agree(fedreptile, {"decay": "linear"})


@pytest.mark.parametrize("eps", [0.0, 1.5])
def test_bad_settings(eps: float) -> None:
    with pytest.raises(ConfigError, match="eps"):
        fedreptile(tiny_setup(tiny_data(), tiny_model()), eps=eps)


def test_an_unknown_decay() -> None:
    with pytest.raises(ConfigError, match="decay"):
        fedreptile(tiny_setup(tiny_data(), tiny_model()), decay="cosine")  # type: ignore[arg-type]


@pytest.mark.parametrize(("rounds", "counted"), [(0, 1), (1, 1), (2, 2), (7, 7)])
def test_the_decay_is_over_the_rounds_there_are(rounds: int, counted: int) -> None:
    method = fedreptile(tiny_setup(tiny_data(), tiny_model(), rounds=rounds), eps=0.25, decay="linear")
    assert method.aggregate["model"] == Reptile(0.25, "linear", counted)
