"""Rprop on the server, weight by weight in plain Python."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from accord.aggregate.reptile import Rprop
from accord.algorithms.server_rprop import server_rprop
from accord.core.types import Replies, Result
from accord.errors import ConfigError
from support.baselines import COHORTS, close, descend, labels_loss, make, mean, processes_agree
from support.federation import Given, tiny_data, tiny_model, tiny_setup


def sign(value: float) -> int:
    return (value > 0) - (value < 0)


def rprop(
    w: list[float], g: list[float], s: list[float], last: list[int]
) -> tuple[list[float], list[float], list[int]]:
    new_w, new_s, new_last = [], [], []
    for weight, gradient, step, before in zip(w, g, s, last, strict=True):
        now = sign(gradient)
        factor = 1.2 if now * before > 0 else 0.5 if now * before < 0 else 1.0
        step = min(max(step * factor, 1e-7), 0.1)
        new_w.append(weight - step * now)
        new_s.append(step)
        new_last.append(now)
    return new_w, new_s, new_last


def test_four_rounds(float64: None) -> None:
    run = make(server_rprop, {"step": 0.05}, sampler=Given(*COHORTS))
    w = dict(run.state["model"])
    steps = {n: [0.05] * p.numel() for n, p in w.items()}
    last = {n: [0] * p.numel() for n, p in w.items()}
    for round in range(4):
        average = mean([descend(w, run.batches(k, round=round), labels_loss(run, k)) for k in COHORTS[round % 3]])
        new = {}
        for n, p in w.items():
            g = (p - average[n]).flatten().tolist()
            values, steps[n], last[n] = rprop(p.flatten().tolist(), g, steps[n], last[n])
            new[n] = torch.tensor(values).view_as(p)
        w = new
    run.rounds(4)
    assert close(run.state["model"], w)
    assert close(run.state["model.step"], {n: torch.tensor(s).view_as(w[n]) for n, s in steps.items()})


def fold(rule: Rprop, state: dict[str, dict[str, Tensor]], mean: list[float]) -> dict[str, dict[str, Tensor]]:
    replies = Replies((0,), (Result({"t": {"w": torch.tensor(mean)}}, {}, {}),), torch.tensor([1]), {})
    return {**state, **rule(state, "t", replies)}


def test_by_hand() -> None:
    """Steps 1, growing by 2 and halving, within [0.5, 2]: repeat, flip, stand still."""
    rule = Rprop(first=1.0, faster=2.0, slower=0.5, low=0.5, high=2.0)
    w = {"w": torch.zeros(3)}
    state = fold(rule, {"t": w, **rule.state("t", w)}, [9.0, -9.0, 0.0])
    assert state["t"]["w"].tolist() == [1.0, -1.0, 0.0]
    state = fold(rule, state, [9.0, 9.0, 1e-6])  # repeats; flips; first sign
    assert state["t"]["w"].tolist() == [3.0, -0.5, 1.0]
    state = fold(rule, state, [9.0, -9.0, 1.0])  # repeats at the ceiling; flips at the floor; already there
    assert state["t"]["w"].tolist() == [5.0, -1.0, 1.0]
    assert state["t.step"]["w"].tolist() == [2.0, 0.5, 1.0]


def test_processes_agree() -> None:
    assert processes_agree(server_rprop)


@pytest.mark.parametrize("step", [0.0, 0.2])
def test_bad_settings(step: float) -> None:
    with pytest.raises(ConfigError, match="step"):
        server_rprop(tiny_setup(tiny_data(), tiny_model()), step=step)
