"""Averages around rules that remember something."""

from __future__ import annotations

import torch
from torch import Tensor

from accord.aggregate import EMA, FedAvgM, Mean, ServerOptimizer
from accord.core.types import Replies, Result

Params = dict[str, Tensor]


def reply(value: float, number: int) -> Result:
    return Result({"model": {"w": torch.tensor([value]), "n": torch.tensor(number)}}, {}, {})


def test_a_moving_average_keeps_what_the_rule_inside_remembers() -> None:
    """keep = 0.25 around a server with momentum 0.5 and rate 2: two rounds by hand."""
    rule = EMA(0.25, ServerOptimizer(FedAvgM(lr=2.0, beta=0.5), Mean("examples")))
    value = {"w": torch.tensor([1.0])}
    state: dict[str, Params] = {"model": value, **rule.state("model", value)}
    assert set(state) == {"model", "model.velocity"}
    for sent, velocity, wanted in (
        # mean (1 * 2 + 3 * 6) / 4 = 5: v = 4, w + 2 v = 9, kept 0.75 * 9 + 0.25 * 1
        ((2.0, 6.0), 4.0, 7.0),
        # mean (1 * 4 + 3 * 8) / 4 = 7: v = 0.5 * 4 + 0 = 2, w + 2 v = 11, kept 0.75 * 11 + 0.25 * 7
        ((4.0, 8.0), 2.0, 10.0),
    ):
        results = tuple(Result({"model": {"w": torch.tensor([one])}}, {}, {}) for one in sent)
        state = {**state, **rule(state, "model", Replies((0, 1), results, torch.tensor([1, 3]), {}))}
        assert state["model.velocity"]["w"].tolist() == [velocity]
        assert state["model"]["w"].tolist() == [wanted]


def test_a_moving_average_leaves_counters_alone() -> None:
    value = {"w": torch.tensor([1.0]), "n": torch.tensor(1)}
    new = EMA(0.5)({"model": value}, "model", Replies((0, 1), (reply(2.0, 7), reply(4.0, 7)), torch.tensor([1, 1]), {}))
    assert new["model"]["w"].tolist() == [2.0]  # half of 1 and half of 3
    assert int(new["model"]["n"]) == 7
