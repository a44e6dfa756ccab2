"""Averages around rules that remember something."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from accord.aggregate import EMA, FedAvgM, Mean, ServerOptimizer, stepped
from accord.aggregate.nash import Nash
from accord.aggregate.reptile import Reptile, Rprop
from accord.aggregate.robust import Median, NormClip
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


@pytest.mark.parametrize(
    ("rule", "weights"),
    [
        (Mean(), "examples"),
        (Mean("uniform"), "uniform"),
        (Reptile(), "uniform"),
        (Rprop(), "uniform"),
        (EMA(0.5, Mean("uniform")), "uniform"),
        (ServerOptimizer(FedAvgM(), Mean("uniform")), "uniform"),
        (ServerOptimizer(FedAvgM()), "examples"),
    ],
    ids=repr,
)
def test_a_rule_says_which_mean_it_reads_and_reads_no_more(rule: Any, weights: str) -> None:
    """Of 2 with one sample and 6 with three: 5 by samples, 4 without. Two answers that are the mean do as well."""
    mean = 5.0 if weights == "examples" else 4.0
    assert rule.averages == weights
    value = {"w": torch.tensor([1.0])}
    state: dict[str, Params] = {"model": value, **rule.state("model", value)}
    found = []
    for sent in ((2.0, 6.0), (mean, mean)):
        results = tuple(Result({"model": {"w": torch.tensor([one])}}, {}, {}) for one in sent)
        found.append(rule(state, "model", Replies((0, 1), results, torch.tensor([1, 3]), {}))["model"]["w"])
    assert torch.equal(*found)
    assert found[0].tolist() != [1.0]


def test_a_moving_average_leaves_counters_alone() -> None:
    value = {"w": torch.tensor([1.0]), "n": torch.tensor(1)}
    new = EMA(0.5)({"model": value}, "model", Replies((0, 1), (reply(2.0, 7), reply(4.0, 7)), torch.tensor([1, 1]), {}))
    assert new["model"]["w"].tolist() == [2.0]  # half of 1 and half of 3
    assert int(new["model"]["n"]) == 7


def test_rules_around_rules_keep_what_is_inside_by_its_tree() -> None:
    value = {"w": torch.tensor([1.0])}
    counting = Reptile(1.0, "linear", rounds=2)
    for rule, names in (
        (EMA(0.5, counting), {"model.rounds"}),
        (NormClip(1.0, counting), {"model.rounds"}),
        (ServerOptimizer(FedAvgM(), counting), {"model.rounds", "model.velocity"}),
        (ServerOptimizer(FedAvgM(), Mean()), {"model.velocity"}),
    ):
        assert set(rule.state("model", value)) == names


def test_a_server_step_passes_on_what_the_rule_inside_has_done_besides() -> None:
    """One bargain over two trees: the model gets half of its step, the other tree all of it, the count is one more."""
    inner = Nash(("relations",), "raw", "uniform")
    rule = ServerOptimizer(FedAvgM(lr=0.5, beta=0.0), inner)
    state = {"model": {"w": torch.tensor([1.0, 1.0])}, "relations": {"r": torch.tensor([2.0])}}
    state |= rule.state("model", state["model"])
    sent = (([5.0, 1.0], [5.0]), ([1.0, 2.0], [2.0]))  # moves (4, 0 | 3) and (0, 1 | 0): shares 1/5 and 1
    results = tuple(
        Result({"model": {"w": torch.tensor(w)}, "relations": {"r": torch.tensor(r)}}, {}, {}) for w, r in sent
    )
    new = rule(state, "model", Replies((0, 1), results, torch.tensor([1, 1]), {}))
    assert new.keys() == {"model", "relations", "model.nash", "model.velocity"}
    torch.testing.assert_close(new["model"]["w"], torch.tensor([1.4, 1.5]))
    torch.testing.assert_close(new["relations"]["r"], torch.tensor([2.6]))
    assert int(new["model.nash"]["agreed"]) == 1


def test_a_step_that_shrinks_to_nothing() -> None:
    """eps = 0.5 over two rounds: 0.5, then 0.25, then 0; counters as they come."""
    rule = Reptile(0.5, "linear", rounds=2)
    value: Params = {"w": torch.tensor([0.0]), "n": torch.tensor(1)}
    state: dict[str, Params] = {"model": value, **rule.state("model", value)}
    for wanted in (4.0, 5.0, 5.0):  # 0 + 0.5 * 8, 4 + 0.25 * 4, and then no more
        replies = Replies((0, 1), (reply(6.0, 7), reply(10.0, 7)), torch.tensor([1, 9]), {})
        state = {**state, **rule(state, "model", replies)}
        assert state["model"]["w"].tolist() == [wanted]
        assert int(state["model"]["n"]) == 7
    assert int(state["model.rounds"]["done"]) == 3
    assert Reptile().state("model", value) == {}
    plain = Reptile(1.0)({"model": value}, "model", replies)
    assert plain["model"]["w"].tolist() == [8.0]
    assert set(plain) == {"model"}


def test_a_whole_step_is_the_mean_to_the_bit() -> None:
    """In single precision 1e8 + (0.1 - 1e8) is 0, and the mean is 0.1."""
    value: Params = {"w": torch.tensor([1e8])}
    replies = Replies((0, 1), (reply(0.1, 1), reply(0.1, 1)), torch.tensor([1, 3]), {})
    assert (
        Reptile(1.0)({"model": value}, "model", replies)["model"]["w"].tolist()
        == reply(0.1, 1).reply["model"]["w"].tolist()
    )
    assert stepped(Mean("uniform"), 1.0) == Mean("uniform")
    half = stepped(Mean("uniform"), 0.5)
    assert half == ServerOptimizer(FedAvgM(lr=0.5, beta=0.0), Mean("uniform"))
    small = {"w": torch.tensor([1.0])}
    state: dict[str, Params] = {"model": small, **half.state("model", small)}
    answers = tuple(Result({"model": {"w": torch.tensor([one])}}, {}, {}) for one in (2.0, 8.0))
    for wanted in (3.0, 4.0):  # half of the way to 5, each time anew: no momentum
        state = {**state, **half(state, "model", Replies((0, 1), answers, torch.tensor([1, 3]), {}))}
        assert state["model"]["w"].tolist() == [wanted]


def test_steps_of_their_own_grow_shrink_and_stay_within_bounds() -> None:
    """Towards the mean by the step alone: first 1, times 1.5 where the sign repeats, a quarter where it turns."""
    rule = Rprop(first=1.0, faster=1.5, slower=0.25, low=0.5, high=2.0)
    value: Params = {"w": torch.zeros(3), "n": torch.tensor(1)}
    state: dict[str, Params] = {"model": value, **rule.state("model", value)}
    assert state["model.step"]["w"].tolist() == [1.0, 1.0, 1.0]
    assert state["model.sign"]["w"].tolist() == [0.0, 0.0, 0.0]
    assert set(state["model.step"]) == {"w"}, "counters have no steps"
    steps = ([1.0, 1.0, 1.0], [1.5, 0.5, 1.0], [2.0, 0.5, 1.0], [0.5, 0.75, 1.0])
    moves = ([100.0, 100.0, 0.0], [100.0, -100.0, 100.0], [100.0, 100.0, 0.0], [-100.0, 100.0, -100.0])
    place = [0.0, 0.0, 0.0]
    for move, step in zip(moves, steps, strict=True):
        target = [a + b for a, b in zip(place, move, strict=True)]
        # by samples the mean would lie on the other side
        sent = (
            [t + 3 * b for t, b in zip(target, move, strict=True)],
            [t - 3 * b for t, b in zip(target, move, strict=True)],
        )
        results = tuple(
            Result({"model": {"w": torch.tensor(one), "n": torch.tensor(n)}}, {}, {})
            for one, n in zip(sent, (4, 7), strict=True)
        )
        state = {**state, **rule(state, "model", Replies((0, 1), results, torch.tensor([1, 9]), {}))}
        signs = [float((b > 0) - (b < 0)) for b in move]
        place = [a + s * b for a, s, b in zip(place, step, signs, strict=True)]
        assert state["model.step"]["w"].tolist() == step
        assert state["model.sign"]["w"].tolist() == [-b for b in signs]
        assert state["model"]["w"].tolist() == place
        assert int(state["model"]["n"]) == 7


def test_rules_around_rules_need_what_is_inside() -> None:
    class Silent(Mean):
        needs_each = averages = None  # type: ignore[assignment]

    for around in (lambda rule: EMA(0.5, rule), lambda rule: ServerOptimizer(FedAvgM(), rule)):
        assert (around(Mean("uniform")).needs_each, around(Mean("uniform")).averages) == ("", "uniform")
        assert "median" in around(Median()).needs_each
        assert around(Median()).averages == ""
        assert around(Silent()).needs_each is None
