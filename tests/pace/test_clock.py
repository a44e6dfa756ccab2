"""Times by hand: how long clients take, who is waited for, who is at work, and what is kept of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from accord.core.keys import Key
from accord.core.plan import Plan
from accord.pace import Clock, Pace
from accord.pace.clock import Message, without_clock
from accord.pace.presence import Always, Terms
from accord.wire.codec import decode, encode

KEY = Key(3)


def pace(**other: Any) -> Pace:
    """Three clients that take 5, 4 and 10 steps."""
    given: dict[str, Any] = {
        "step": np.array([0.5, 1.0, 2.0]),
        "mbit": np.array([8.0, 0.0, 1.0]),
        "latency": np.array([0.25, 0.0, 1.0]),
        "presence": Always(Terms(KEY, 3, 1.0, 1.0, None)),
        "steps": lambda task, client: {"train": (5, 4, 10), "moments": (0, 0, 0)}[task][client],
    }
    return Pace(**{**given, **other})


def test_seconds_are_work_and_sending_and_latency() -> None:
    """8 Mbit/s are 1,000,000 bytes a second; 0 sends at once."""
    assert pace().seconds("train", 0, 3_000_000, 500_000) == 5 * 0.5 + 3.5 + 0.25
    assert pace().seconds("train", 1, 3_000_000, 500_000) == 4.0
    assert pace().seconds("train", 2, 125_000, 250_000) == 20.0 + 3.0 + 1.0
    assert pace().seconds("moments", 2, 0, 0) == 1.0
    assert pace().weighs
    assert not pace(mbit=np.zeros(3)).weighs


@pytest.mark.parametrize(
    ("plan", "steps"),
    [
        (Plan(epochs=2, batch_size=4), 6),
        (Plan(epochs=2, batch_size=4, last_batch="drop"), 4),
        (Plan(epochs=2, batch_size=0), 2),
        (Plan(steps=7, batch_size=4), 7),
        (Plan(steps=7, batch_size=11, last_batch="drop"), 0),
        (Plan(epochs=0), 0),
    ],
)
def test_steps_of_a_client_with_ten_samples(plan: Plan, steps: int) -> None:
    assert plan.count(10) == steps
    assert plan.count(10) == len(plan.schedule(np.random.default_rng(0), 10))
    assert plan.count(0) == 0


def test_a_round_takes_as_long_as_the_last_one() -> None:
    clock = Clock(KEY, pace())
    assert clock.gather(0, {4: 3.0, 1: 7.5, 2: 0.5}, 3) == ([1, 2, 4], {})
    assert clock.now == 7.5
    clock.gather(1, {4: 3.0}, 1)
    assert clock.now == 10.5


def test_those_after_the_deadline_are_late_and_the_server_waits_until_then() -> None:
    clock = Clock(KEY, pace(deadline=20.0))
    taken, missing = clock.gather(0, {0: 34.0, 1: 5.0, 2: 20.0}, 3)
    assert taken == [1, 2]
    assert missing == {0: "late: 34 s, the deadline was 20 s"}
    assert clock.now == 20.0
    assert clock.gather(0, {0: 34.0}, 1)[0] == []
    assert clock.now == 40.0


def test_the_first_to_come_make_the_round() -> None:
    clock = Clock(KEY, pace(deadline=20.0))
    taken, missing = clock.gather(0, {0: 34.0, 1: 5.0, 2: 12.0, 3: 7.0}, 2)
    assert taken == [1, 3]
    assert missing == {
        0: "late: 34 s, the deadline was 20 s",
        2: "not waited for: 12 s, enough came in 7 s",
    }
    assert clock.now == 7.0, "enough came, so nobody waits for the deadline"


def test_of_those_who_come_together_chance_takes_some() -> None:
    firsts = [tuple(Clock(KEY, pace()).gather(round, dict.fromkeys(range(4), 1.0), 2)[0]) for round in range(30)]
    assert {client for taken in firsts for client in taken} == {0, 1, 2, 3}
    assert firsts == [tuple(Clock(KEY, pace()).gather(r, dict.fromkeys(range(4), 1.0), 2)[0]) for r in range(30)]


def test_clients_at_work_come_in_the_order_of_their_ends() -> None:
    clock = Clock(KEY, pace(deadline=10.0))
    early, late = Message("train", 0, 0.1, 0, {}), Message("train", 1, 0.1, 1, {})
    clock.depart("0-0", early, 0, 8.0)
    clock.depart("0-0", early, 1, 30.0)
    clock.now = 1.0
    clock.depart("1-0", late, 2, 2.0)
    assert clock.at_work() == {0, 1, 2}
    ends = []
    while (found := clock.land()) is not None:
        message, flight = found
        ends.append((message.version, flight.client, flight.late, clock.now))
    assert ends == [(1, 2, 0.0, 3.0), (0, 0, 0.0, 8.0), (0, 1, 30.0, 10.0)]
    assert clock.messages == {}


def test_without_a_pace_everybody_takes_one_unit_of_time_and_nobody_is_late() -> None:
    clock = Clock(KEY)
    assert clock.seconds("train", 5, 10**9) == 1.0
    assert clock.deadline == math.inf
    assert clock.present(0, [3, 1]) == [3, 1]
    clock.wait()
    assert clock.now == 0.0
    assert clock.trees() == {}


def test_all_of_it_is_kept() -> None:
    clock = Clock(KEY, pace())
    clock.now, clock.answers = 1 / 3, {"train.more": 1234}
    model = {"w": torch.tensor([0.1, 0.2])}
    private = {2: {"own": {"x": torch.tensor([7])}}, 1: {}}
    message = Message("train.more", 4, 0.1, 9, {"model": model, "buffers": {}}, private)
    clock.depart("4-0", message, 2, 5.0)
    clock.depart("4-0", message, 1, 0.7)
    kept = clock.trees()
    state = {"model": {"w": torch.zeros(1)}, **kept}
    again = Clock(KEY, pace(), decode(encode(state)))
    assert (again.now, again.answers) == (1 / 3, {"train.more": 1234})
    (found,) = again.messages.values()
    assert (found.task, found.round, found.lr, found.version) == ("train.more", 4, 0.1, 9)
    assert found.flights == message.flights
    assert torch.equal(found.shared["model"]["w"], model["w"])
    assert found.shared["buffers"] == {}
    assert list(found.private) == [2]
    assert torch.equal(found.private[2]["own"]["x"], torch.tensor([7]))
    assert list(without_clock(state)) == ["model"]
    assert encode(again.trees()) == encode(kept)
