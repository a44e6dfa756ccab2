"""Samplers, tables and looks: the files beside the rooms, on a few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from accord.client import check_finite
from accord.colours import COLOURS, KNOWN, LINES, Look, looks
from accord.core.keys import Key
from accord.core.types import Result, World
from accord.errors import DivergedError, nearest
from accord.figures import judged_value, series
from accord.frames import frame_of, scalars
from accord.sampling import SAMPLERS, Everyone


@pytest.mark.parametrize(
    ("weight", "metrics", "said"),
    [
        (float("nan"), {"loss": 6.0, "seen": 3.0}, "round 3 on client 8: mean loss 2, weights not finite"),
        (float("nan"), {"loss": 6.0}, "round 3 on client 8: mean loss 0, weights not finite"),
        (1.0, {"loss": float("inf"), "seen": 0.0}, "round 3 on client 8: mean loss inf, loss not finite"),
    ],
)
def test_a_client_that_diverged_is_told_by_its_mean_loss(weight: float, metrics: dict[str, float], said: str) -> None:
    told = {name: torch.tensor(value) for name, value in metrics.items()}
    for trees in ({"model": {"w": torch.tensor([weight])}}, {}), ({}, {"own": {"w": torch.tensor([weight])}}):
        with pytest.raises(DivergedError, match=said):
            check_finite(Result(trees[0], trees[1], told), 2, 8)


def world(clients: list[int], round: int = 0, sizes: list[int] | None = None) -> World:
    return World(round, clients, np.array(sizes or [1] * (max(clients) + 1)), Key(5))


def test_cohorts_are_sorted_distinct_and_no_larger_than_the_federation() -> None:
    for name in ("uniform", "weighted", "cyclic"):
        sampler = SAMPLERS[name](3)
        assert (sampler.size(2), sampler.size(5)) == (2, 3)
        for round in range(6):
            cohort = sampler({}, world([1, 3, 4, 6, 9], round))
            assert cohort == sorted(set(cohort))
            assert len(cohort) == 3
            assert set(cohort) <= {1, 3, 4, 6, 9}
        assert sampler({}, world([2, 7])) == [2, 7]
    assert Everyone()({}, world([4, 1])) == [1, 4]
    assert Everyone().size(7) == 7
    assert list(SAMPLERS) == ["uniform", "weighted", "cyclic", "poisson"]


def test_a_cohort_is_drawn_from_the_stream_of_its_round() -> None:
    clients = [1, 3, 4, 6, 9]
    for round in range(4):
        drawn = Key(5).at("cohort", round).choice(5, size=2, replace=False)
        assert SAMPLERS["uniform"](2)({}, world(clients, round)) == sorted(clients[i] for i in drawn)


def test_who_holds_more_is_asked_more_often_and_who_holds_nothing_never() -> None:
    sizes = [0, 90, 5, 5]
    cohorts = [SAMPLERS["weighted"](1)({}, world([0, 1, 2, 3], round, sizes)) for round in range(60)]
    counts = [sum(client in cohort for cohort in cohorts) for client in range(4)]
    assert counts[0] == 0
    assert counts[1] > 40
    assert counts[2] + counts[3] > 0
    assert len(SAMPLERS["weighted"](4)({}, world([0, 1, 2, 3], 0, sizes))) == 3
    expected = Key(5).at("cohort", 3).choice(3, size=2, replace=False, p=[0.9, 0.05, 0.05])
    assert SAMPLERS["weighted"](2)({}, world([1, 2, 3], 3, sizes)) == sorted([1, 2, 3][i] for i in expected)


def test_in_turn_everybody_is_asked_before_anybody_again() -> None:
    order = Key(5).at("cohort").permutation(np.array([1, 3, 4, 6, 9])).tolist()
    asked = [SAMPLERS["cyclic"](2)({}, world([1, 3, 4, 6, 9], round)) for round in range(5)]
    assert asked == [sorted([order[(2 * r) % 5], order[(2 * r + 1) % 5]]) for r in range(5)]
    assert sorted(client for cohort in asked for client in cohort) == sorted(2 * [1, 3, 4, 6, 9])


def test_each_by_itself() -> None:
    clients = list(range(40))
    for round in range(3):
        chance = Key(5).at("cohort", round).random(40)
        expected = [client for client in clients if chance[client] < 10 / 40]
        assert SAMPLERS["poisson"](10)({}, world(clients, round)) == expected
    assert SAMPLERS["poisson"](10).size(4) == 4


def test_numbers_of_a_record() -> None:
    record: dict[str, Any] = {"round": 2, "a": 0.5, "c": {"best": 1, "d": {"e": 2}}, "on": True, "l": [3], "n": None}
    assert dict(scalars(record)) == {"round": 2.0, "a": 0.5, "c/best": 1.0, "c/d/e": 2.0}
    frame = frame_of([{"round": 1, "a": 0.5}, {"round": 2, "b": 3}])
    assert frame.index.tolist() == [1, 2]
    assert frame["a"].tolist()[0] == 0.5
    assert frame["b"].tolist()[1] == 3.0
    both = frame_of([{"seed": 0, "round": 1, "a": 1}, {"seed": 1, "round": 1, "a": 2}], ("seed", "round"))
    assert both.index.tolist() == [(0, 1), (1, 1)]
    assert frame_of([]).index.name == "round"


def test_means_over_runs_by_round() -> None:
    runs = [[{"round": 2, "c": {"worst": 3.0}}, {"round": 1, "c": {"worst": 1.0}}], [{"round": 1, "c": {"worst": 3.0}}]]
    assert series(runs, "c/worst") == [(1, 2.0, pytest.approx(2**0.5)), (2, 3.0, 0.0)]
    assert series([[{"round": 1, "accuracy": float("nan")}, {"round": 2, "accuracy": None}]]) == []


def test_what_pictures_show() -> None:
    own = {"a": [[{"round": 1, "accuracy": 0.5, "personal": {"mean": 0.6}}]]}
    assert judged_value(own, [{"judged_by": "personal_accuracy"}]) == "personal/mean"
    assert judged_value(own, [{"judged_by": "personal_accuracy"}, {"judged_by": "accuracy"}]) == "accuracy"
    assert judged_value(own, [{}]) == "accuracy"
    assert judged_value({"a": [[{"round": 1, "personal": {"mean": 0.6}}]]}, [{}]) == "personal/mean"
    assert judged_value({"a": [[{"round": 1, "rmse": 2.0}]]}, [{}]) == "rmse"
    assert judged_value({}, [{}]) == "accuracy"


def test_looks_are_known_and_different() -> None:
    assert KNOWN["fedavg"] == Look("#000000", "-")
    assert KNOWN["ditto"] == Look(COLOURS["black"], "--")
    found = looks(["scaffold", "fedufo", "fedavg", "mine"])
    assert found["scaffold"] == KNOWN["scaffold"], "the first of two that look alike"
    assert found["fedufo"] != found["scaffold"]
    assert len(set(found.values())) == 4
    assert found["fedufo"] == Look(COLOURS["blue"], "--"), "its colour, and a line that nobody has"
    assert found["mine"] == Look(COLOURS["red"], "-"), "a solid line of a colour that nobody has"
    every = len(COLOURS) * len(LINES)
    many = looks([f"m{number}" for number in range(every + 2)])
    assert len(set(many.values())) == every
    assert many[f"m{every}"] == many["m0"]


def test_slips_of_the_pen() -> None:
    assert nearest("fedagv", ["fedavg", "scaffold"]) == " Did you mean 'fedavg'?"
    assert nearest("zzzz", ["fedavg"]) == ""
    assert nearest("ab", ["abxx", "yyyy"]) == " Did you mean 'abxx'?"
    assert nearest("a" * 400, ["a" * 100]) == f" Did you mean '{'a' * 100}'?"
