"""FedBuff against a reference in plain Python: a heap of events, SGD by hand, the rule of the paper; and by hand."""

from __future__ import annotations

import heapq
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from accord.algorithms.fedbuff import Stale
from accord.config.tree import PaceConfig
from accord.core.keys import Key
from accord.core.types import Began, Replies, Result, World
from accord.errors import ConfigError
from support.federation import Given, TinyRun, equal_trees
from support.reference import Params, local_sgd

SECONDS = {0: 1.03, 1: 0.27, 2: 0.51, 3: 2.11}  # per step; nobody comes at the same time as another
STEPS = {0: 4, 1: 6, 2: 6, 3: 8}


@pytest.fixture
def pace(tmp_path: Path) -> PaceConfig:
    lines = ["client,seconds_per_step", *(f"{client},{value}" for client, value in SECONDS.items())]
    (tmp_path / "devices.csv").write_text("\n".join(lines) + "\n")
    return PaceConfig(devices=str(tmp_path / "devices.csv"))


def reference(
    run: TinyRun, rounds: int, concurrency: int, buffer: int, *, exponent: float, eta: float, most: int = 0
) -> tuple[Params, float, list[list[int]], list[int]]:
    """The model, the time, who was in each buffer and how many came too late for it: Algorithm 1 of the paper."""
    w = dict(run.state["model"])
    heap: list[tuple[float, int, int, int, Params]] = []  # end, client, version, round, start
    now = 0.0
    cohorts: list[list[int]] = []
    dropped: list[int] = []
    for version, round in enumerate(range(rounds)):  # every round moves the model once
        waiting = [int(k) for k in run.key.at("turn", round).permutation([0, 1, 2, 3])]
        came: list[tuple[int, int, Params, Params]] = []
        ended: set[int] = set()
        too_old = 0
        while len(came) < buffer:
            for client in list(waiting):
                if len(heap) < concurrency and client not in {one[1] for one in heap} | ended:
                    heapq.heappush(heap, (now + STEPS[client] * SECONDS[client], client, version, round, w))
                    waiting.remove(client)
            if not heap:
                break
            now, client, began, at, start = heapq.heappop(heap)
            ended.add(client)
            trained, steps = local_sgd(run, client, start, at)
            assert steps == STEPS[client]
            if most and version - began > most:
                too_old += 1
            else:
                came.append((client, version - began, start, trained))
        w = {
            name: value
            + eta / len(came) * sum((1 + tau) ** -exponent * (new[name] - start[name]) for _, tau, start, new in came)
            for name, value in w.items()
        }
        cohorts.append(sorted(one[0] for one in came))
        dropped.append(too_old)
    return w, now, cohorts, dropped


def close(a: Any, b: Params) -> bool:
    return a.keys() == b.keys() and all(
        torch.allclose(a[name], value, rtol=1e-10, atol=1e-12) for name, value in b.items()
    )


@pytest.mark.parametrize(
    ("concurrency", "buffer", "exponent", "eta"),
    [(2, 1, 0.5, 1.0), (3, 2, 0.5, 0.7), (4, 2, 2.0, 1.0), (2, 2, 0.0, 1.0)],
)
def test_rounds_by_the_clock(
    concurrency: int, buffer: int, exponent: float, eta: float, pace: PaceConfig, float64: None
) -> None:
    settings = {"concurrency": concurrency, "buffer": buffer, "exponent": exponent, "server_lr": eta}
    run = TinyRun("fedbuff", settings, pace=pace)
    w, now, cohorts, _ = reference(run, 6, concurrency, buffer, exponent=exponent, eta=eta)
    seen, late = [], []
    for _ in range(6):
        run.rounds(1)
        assert run.replies is not None
        seen.append(list(run.replies.ids))
        late.append(run.algorithm.metrics(run.state)["staleness"])
    assert seen == cohorts
    assert run.clock.now == now
    assert close(run.state["model"], w)
    assert max(late) > 0, "somebody was late, or nothing was tried"


def test_answers_that_are_too_old_count_for_nothing(pace: PaceConfig, float64: None) -> None:
    run = TinyRun("fedbuff", {"concurrency": 3, "buffer": 1, "max_staleness": 2}, pace=pace)
    w, now, cohorts, dropped = reference(run, 20, 3, 1, exponent=0.5, eta=1.0, most=2)
    seen, left_out = [], []
    for _ in range(20):
        run.rounds(1)
        assert run.replies is not None
        seen.append(list(run.replies.ids))
        left_out.append(run.algorithm.metrics(run.state)["too_stale"])
    assert sum(dropped) > 0
    assert left_out == dropped
    assert seen == cohorts
    assert run.clock.now == now
    assert close(run.state["model"], w)


def test_the_rule_by_hand() -> None:
    """w = 10; from 8 to 5, two moves ago (weight 3^-1/2); from 10 to 14, now: 10 + 0.5 / 2 (-3 / sqrt 3 + 4)."""
    results = tuple(
        Result({"model": {"w": torch.tensor([value], dtype=torch.float64)}}, {}, {}) for value in (5.0, 14.0)
    )
    began = tuple(Began(v, {"model": {"w": torch.tensor([w], dtype=torch.float64)}}) for v, w in ((4, 8.0), (6, 10.0)))
    replies = Replies((0, 1), results, torch.tensor([1, 100]), {}, began)
    state = {"model": {"w": torch.tensor([10.0], dtype=torch.float64)}, "buffered": {"updates": torch.tensor(6)}}
    moved = Stale(0.5, 0.5)(state, "model", replies)["model"]["w"]
    assert float(moved) == pytest.approx(10 + 0.25 * (-1.7320508075688772 + 4.0), rel=1e-14)


def test_with_a_buffer_of_the_whole_cohort_it_is_fedavg(float64: None) -> None:
    run = TinyRun("fedbuff", {"concurrency": 4, "buffer": 4}).rounds(3)
    base = TinyRun("fedavg", {"weight": "uniform"}).rounds(3)
    assert close(run.state["model"], base.state["model"])
    assert run.algorithm.metrics(run.state) == {"staleness": 0.0}
    assert run.clock.at_work() == set()


def test_the_cohort_of_a_round_is_the_concurrency_and_half_of_it_the_buffer() -> None:
    run = TinyRun("fedbuff", sampler=Given([0, 1, 2])).rounds(1)
    assert run.replies is not None
    assert len(run.replies) == 2
    assert len(run.clock.at_work()) == 2, "three at work, and the place of the first to come was taken again"


def test_an_exchange_that_waits_for_everyone_will_do(float64: None) -> None:
    """Then whoever begins answers at once, and nothing is ever stale."""
    run, waiting = TinyRun("fedbuff"), TinyRun("fedavg")
    exchange = waiting.exchange()
    asked: list[list[int]] = []

    def plain(task: str, clients: Any, shared: Any, private: Any = None) -> Replies:
        asked.append(list(clients))
        return exchange(task, clients, shared, private)

    state, replies = run.algorithm.round(run.state, run.world(), plain)
    order = [int(k) for k in run.key.at("turn", 0).permutation([0, 1, 2, 3])]
    assert asked == [order[:2]]
    assert replies.ids == tuple(sorted(order[:2]))
    means = [local_sgd(run, client, dict(run.state["model"]), 0)[0] for client in order[:2]]
    assert close(state["model"], {name: (means[0][name] + means[1][name]) / 2 for name in means[0]})


def test_work_goes_on_over_a_stop(pace: PaceConfig) -> None:
    settings = {"concurrency": 4, "buffer": 1}
    whole = TinyRun("fedbuff", settings, pace=pace).rounds(7)
    first = TinyRun("fedbuff", settings, pace=pace).rounds(4)
    assert first.clock.messages, "nobody is at work, so nothing was tried"
    second = TinyRun("fedbuff", settings, pace=pace)
    second.state, second.round = first.state, 4
    assert equal_trees(whole.state, second.rounds(3).state)
    assert whole.clock.now == second.clock.now


def test_what_it_refuses() -> None:
    with pytest.raises(ConfigError, match="concurrency"):
        TinyRun("fedbuff", {"concurrency": -1})
    with pytest.raises(ConfigError, match="server_lr"):
        TinyRun("fedbuff", {"server_lr": 0.0})


def test_the_order_of_turns_is_drawn_from_sorted_clients_whatever_the_sampler_says() -> None:
    """A set of 1 and 8 is not in order of its own."""
    key = Key(5)
    rng = key.at("turn", 3)
    expected = [*rng.permutation([2, 4, 9]).tolist(), *rng.permutation([1, 8]).tolist()]
    world = World(3, [1, 2, 4, 8, 9], np.ones(10, np.int64), key)
    for named in ([2, 4, 9], [9, 2, 4], [4, 9, 2]):
        method = TinyRun("fedbuff").algorithm
        chosen = replace(method, sampler=lambda state, world, named=named: list(named))  # type: ignore[type-var]
        assert chosen.order({}, world) == expected  # type: ignore[attr-defined]


def test_no_more_can_be_at_work_than_there_are() -> None:
    """Ten places and four clients: half of four make a round."""
    run = TinyRun("fedbuff", {"concurrency": 10}).rounds(1)
    assert run.replies is not None
    assert len(run.replies) == 2
    assert run.rounds(1).state["buffered"]["updates"] == 2


def test_a_round_in_which_nobody_answers_moves_nothing_and_counts_for_none() -> None:
    run = TinyRun("fedbuff", {"max_staleness": 1}).rounds(1)

    def nobody(task: str, clients: Any, shared: Any, private: Any = None) -> Replies:
        return Replies((), (), torch.zeros(0), dict.fromkeys(clients, "gone"))

    state, replies = run.algorithm.round(run.state, run.world(), nobody)
    assert len(replies) == 0
    assert equal_trees({"m": state["model"]}, {"m": run.state["model"]})
    assert int(state["buffered"]["updates"]) == 1
    assert run.algorithm.metrics(state) == {"staleness": 0.0, "too_stale": 0.0}
