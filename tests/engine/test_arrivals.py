"""Clients that come as they are done, by a clock written by hand: places, late ones, bytes, what they began from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from accord.client import Answer, Request
from accord.core.keys import Key
from accord.core.tensors import Trees
from accord.core.types import Result
from accord.engine.arrivals import StreamingExchange
from accord.engine.exchange import DROPPED_OUT, EmptyRound, Policy
from accord.engine.store import ClientStore
from accord.errors import RunError
from accord.pace import Clock, Pace

KEY = Key(3)
MESSAGE: Trees = {"model": {"w": torch.zeros(10)}}  # 40 bytes
SECONDS = (1.0, 2.0, 3.0, 4.0, 5.0)  # each client's


class Notes:
    """An executor that answers with three numbers (12 bytes) and notes what it was asked."""

    def __init__(self, *failing: int) -> None:
        self.failing = failing
        self.asked: list[tuple[int, float, list[int]]] = []
        self.private: dict[int, Trees] = {}  # what clients were sent beside what all were

    def run(self, request: Request) -> list[Answer]:
        self.asked.append((request.round, request.lr, [work.client for work in request.works]))
        self.private |= {work.client: work.private for work in request.works}
        return [self.answer(work.client) for work in request.works]

    def answer(self, client: int) -> Answer:
        if client in self.failing:
            return Answer(client, None, "broken disk")
        kept = {"own": {"n": torch.tensor(client)}}
        return Answer(client, Result({"model": {"w": torch.full((3,), float(client))}}, kept, {}))

    def close(self) -> None:
        """Nothing to give back."""


class House:
    """Five clients with 10 to 14 samples, and exchanges for their rounds over one clock."""

    def __init__(self, folder: Path, *failing: int, there: Any = None, **pace: Any) -> None:
        self.executor = Notes(*failing)
        self.store = ClientStore(folder, np.arange(10, 15), 1 << 20)
        zeros = np.zeros(5)
        mbit = pace.pop("mbit", zeros)
        presence = there or (lambda round, now: np.ones(5, dtype=np.bool_))
        steps = lambda task, client: 1  # noqa: E731
        self.clock = Clock(KEY, Pace(np.array(SECONDS), mbit, zeros, presence, steps, **pace))

    def exchange(self, round: int = 0, lr: float = 0.1, **options: Any) -> StreamingExchange:
        return StreamingExchange(self.executor, self.store, KEY, round, lr, clock=self.clock, **options)


def test_who_waits_begins_where_a_place_is_free(tmp_path: Path) -> None:
    """Two places: 4 and 0 begin; 0 ends at 1 s and 1 begins, which ends at 3 s; then 2, which would end at 6 s."""
    house = House(tmp_path)
    stream = house.exchange()
    stream.begin("train", [4, 0, 1, 2, 3], MESSAGE, slots=2)
    assert house.clock.at_work() == {4, 0}
    assert stream.bytes_down == 2 * 40
    assert stream.arrivals(1).ids == (0,)
    assert house.clock.now == 1.0
    assert stream.arrivals(1).ids == (1,)
    assert house.clock.now == 3.0
    assert house.clock.at_work() == {4}, "a place is filled when somebody is waited for"
    assert stream.arrivals(2).ids == (2, 4)
    assert house.clock.now == 6.0
    assert stream.bytes_down == 5 * 40
    assert stream.bytes_up == 4 * 12
    assert stream.missing == {}


def test_without_a_number_of_places_all_begin_at_once(tmp_path: Path) -> None:
    house = House(tmp_path)
    stream = house.exchange()
    own: Trees = {"note": {"n": torch.zeros(2)}}  # 8 bytes
    stream.begin("train", [0, 1, 2, 3, 4], MESSAGE, {2: own})
    assert house.clock.at_work() == {0, 1, 2, 3, 4}
    assert stream.bytes_down == 5 * 40 + 8
    replies = stream.arrivals(3)
    assert replies.ids == (0, 1, 2)
    assert replies.examples.tolist() == [10, 11, 12]
    assert [float(result.reply["model"]["w"][0]) for result in replies.results] == [0.0, 1.0, 2.0]
    assert house.executor.asked == [(0, 0.1, [0, 1, 2])], "those who come together are run together"
    assert house.executor.private == {0: {}, 1: {}, 2: own}


def test_work_of_an_earlier_round_keeps_its_round_rate_and_message(tmp_path: Path) -> None:
    """Who is still at work is not asked again; its answer is that of the message it began from."""
    house = House(tmp_path)
    first = house.exchange(round=4, lr=0.5)
    first.begin("train", [0, 3], MESSAGE, version=11)
    assert first.arrivals(1).ids == (0,)
    second = house.exchange(round=5, lr=0.25)
    second.begin("train", [3, 1, 0], {"model": {"w": torch.ones(10)}}, version=12)
    assert house.clock.at_work() == {0, 1, 3}
    assert second.bytes_down == 2 * 40, "who is at work is sent nothing"
    replies = second.arrivals(3)
    assert replies.ids == (0, 1, 3)
    assert [began.version for began in replies.began] == [12, 12, 11]
    assert [float(began.shared["model"]["w"][0]) for began in replies.began] == [1.0, 1.0, 0.0]
    assert sorted(house.executor.asked[1:]) == [(4, 0.5, [3]), (5, 0.25, [0, 1])]


def test_those_who_come_together_are_run_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Two places: 0 ends at 1 s, 1 at 3 s, 3 at 4 s, and 2, who began at 3 s, at 6 s."""
    house = House(tmp_path)
    stream = house.exchange()
    stream.begin("train", [3, 0, 1, 2], MESSAGE, slots=2)
    assert stream.arrivals(4).ids == (0, 1, 2, 3)
    assert house.clock.now == 6.0
    assert house.executor.asked == [(0, 0.1, [0, 1, 2, 3])]


def test_who_waits_twice_is_at_work_once(tmp_path: Path) -> None:
    house = House(tmp_path)
    stream = house.exchange()
    stream.begin("train", [0, 0, 1], MESSAGE)
    assert house.clock.at_work() == {0, 1}
    assert stream.bytes_down == 2 * 40
    assert stream.arrivals(3).ids == (0, 1)


def test_messages_of_one_round_are_told_apart(tmp_path: Path) -> None:
    house = House(tmp_path)
    stream = house.exchange()
    stream.begin("train", [0], MESSAGE, version=1)
    stream.begin("train", [1], MESSAGE, version=2)
    assert len(house.clock.messages) == 2
    assert [began.version for began in stream.arrivals(2).began] == [1, 2]


def test_who_has_answered_does_not_begin_again_in_a_round(tmp_path: Path) -> None:
    house = House(tmp_path)
    stream = house.exchange()
    stream.begin("train", [0, 4], MESSAGE)
    assert stream.arrivals(1).ids == (0,)
    stream.begin("train", [0, 1], MESSAGE)
    assert house.clock.at_work() == {1, 4}


def test_late_ones_are_given_up_and_leave_their_place(tmp_path: Path) -> None:
    """A deadline of 2.5 s and one place: client 4 is given up then, 1 comes 2 s later."""
    house = House(tmp_path, deadline=2.5)
    stream = house.exchange()
    stream.begin("train", [4, 1], MESSAGE, slots=1)
    replies = stream.arrivals(2)
    assert replies.ids == (1,)
    assert house.clock.now == 4.5
    assert dict(replies.missing) == stream.missing == {4: "late: 5 s, the deadline was 2.5 s"}
    assert house.executor.asked == [(0, 0.1, [1])], "what nobody waits for is never computed"


def test_a_drop_out_takes_no_place_and_no_bytes(tmp_path: Path) -> None:
    house = House(tmp_path)
    stream = house.exchange(drop_rate=1.0)
    stream.begin("train", [0, 1], MESSAGE, slots=1)
    assert stream.missing == {0: DROPPED_OUT, 1: DROPPED_OUT}
    assert stream.bytes_down == 0
    assert house.clock.at_work() == set()


def test_who_is_not_there_waits_until_it_is(tmp_path: Path) -> None:
    """Client 0 comes at 2 s; until then 1 is at work, in the only place but one."""
    house = House(tmp_path, there=lambda round, now: np.array([now >= 2, True, True, True, True]))
    stream = house.exchange()
    stream.begin("train", [0, 1], MESSAGE, slots=2)
    assert house.clock.at_work() == {1}
    assert stream.arrivals(1).ids == (1,)
    assert stream.arrivals(1).ids == (0,)
    assert house.clock.now == 3.0


def test_too_few_make_no_round_and_time_passes_where_none_did(tmp_path: Path) -> None:
    house = House(tmp_path, there=lambda round, now: np.zeros(5, dtype=np.bool_), wait=7.0)
    stream = house.exchange()
    stream.begin("train", [0, 1], MESSAGE)
    with pytest.raises(EmptyRound, match="0 answered and nobody else is at work, at least 1 are needed"):
        stream.arrivals(2)
    assert house.clock.now == 7.0
    house = House(tmp_path, deadline=2.5, wait=7.0)
    stream = house.exchange(policy=Policy(minimum=2))
    stream.begin("train", [0, 4], MESSAGE)
    with pytest.raises(EmptyRound, match="1 answered and nobody else is at work, at least 2 are needed"):
        stream.arrivals(3)
    assert house.clock.now == 2.5, "it has passed already"
    assert stream.bytes_up == 0


def test_those_who_came_before_count_for_the_minimum(tmp_path: Path) -> None:
    house = House(tmp_path)
    stream = house.exchange(policy=Policy(minimum=2))
    stream.begin("train", [0, 1, 2], MESSAGE)
    assert stream.arrivals(2).ids == (0, 1)
    assert stream.arrivals(2).ids == (2,)
    assert stream.arrivals(2).ids == (), "three have answered"


def test_a_failed_client_is_missing_and_another_is_waited_for(tmp_path: Path) -> None:
    house = House(tmp_path, 1)
    stream = house.exchange(policy=Policy(tolerate=0.5))
    stream.begin("train", [0, 1, 2], MESSAGE)
    replies = stream.arrivals(2)
    assert replies.ids == (0, 2)
    assert dict(replies.missing) == stream.missing == {1: "broken disk"}
    assert stream.bytes_up == 2 * 12
    house = House(tmp_path, 0, 1)
    stream = house.exchange(policy=Policy(tolerate=1.0))
    stream.begin("train", [0, 1], MESSAGE)
    with pytest.raises(EmptyRound):
        stream.arrivals(2)
    assert stream.missing == {0: "broken disk", 1: "broken disk"}


def test_a_failure_beside_a_good_answer_does_not_take_it_along(tmp_path: Path) -> None:
    """Two must answer in a round; of the first two that come one has failed, and the third makes up for it."""
    house = House(tmp_path, 0)
    stream = house.exchange(policy=Policy(minimum=2, tolerate=0.5))
    stream.begin("train", [0, 1, 2], MESSAGE)
    replies = stream.arrivals(2)
    assert replies.ids == (1, 2)
    assert dict(replies.missing) == {0: "broken disk"}


def test_no_more_are_needed_than_are_waited_for(tmp_path: Path) -> None:
    house = House(tmp_path)
    stream = house.exchange(policy=Policy(minimum=3))
    stream.begin("train", [0, 1, 2], MESSAGE)
    assert stream.arrivals(2).ids == (0, 1)


def test_answers_tell_of_those_missing_since_the_answers_before(tmp_path: Path) -> None:
    """With a deadline of 2.5 s and one place client 4 is late, then 0 and 1 come; then 3 is late, and 2 would be."""
    house = House(tmp_path, deadline=2.5)
    stream = house.exchange()
    stream.begin("train", [4, 0, 1, 3], MESSAGE, slots=1)
    assert set(stream.arrivals(1).missing) == {4}
    assert dict(stream.arrivals(1).missing) == {}
    assert set(stream.arrivals(1).missing) == {3}
    assert set(stream.missing) == {3, 4}, "the round's record has all of them"


def test_who_waits_goes_on_waiting_when_others_begin(tmp_path: Path) -> None:
    house = House(tmp_path)
    stream = house.exchange()
    stream.begin("train", [0, 1], MESSAGE, slots=1)
    stream.begin("train", [2], MESSAGE, slots=1)
    assert house.clock.at_work() == {0}
    assert stream.arrivals(3).ids == (0, 1, 2)
    assert house.clock.now == 6.0, "one after the other"


def test_later_questions_say_how_many_places_there_are(tmp_path: Path) -> None:
    house = House(tmp_path)
    stream = house.exchange()
    stream.begin("train", [0, 1, 2], MESSAGE, slots=1)
    stream.begin("train", [3], MESSAGE, slots=3)
    assert house.clock.at_work() == {0, 1, 2}
    stream = House(tmp_path).exchange()
    stream.begin("train", [0, 1], MESSAGE, slots=2)
    stream.begin("train", [2, 3], MESSAGE, slots=1)
    assert stream.clock.at_work() == {0, 1}
    assert [stream.arrivals(1).ids for _ in range(3)] == [(0,), (1,), (2,)]
    assert stream.clock.now == 5.0, "the third began when both had ended"


def test_answers_that_make_up_for_others_are_ordered_too_and_no_more_than_are_wanted(tmp_path: Path) -> None:
    """One place: 3 comes, 1 fails, 0 comes in its stead; 2 is never waited for."""
    house = House(tmp_path, 1)
    stream = house.exchange(policy=Policy(tolerate=0.5))
    stream.begin("train", [3, 1, 0, 2], MESSAGE, slots=1)
    replies = stream.arrivals(2)
    assert (replies.ids, replies.examples.tolist()) == ((0, 3), [10, 13])
    assert [float(result.reply["model"]["w"][0]) for result in replies.results] == [0.0, 3.0]
    assert house.clock.now == 4 + 2 + 1
    house = House(tmp_path, 1)
    stream = house.exchange(policy=Policy(tolerate=0.5))
    stream.begin("train", [0, 1, 2, 3], MESSAGE)
    assert stream.arrivals(2).ids == (0, 2)
    assert house.clock.at_work() == {3}


def test_what_clients_keep_is_told_apart_by_the_answers_it_came_with(tmp_path: Path) -> None:
    house = House(tmp_path)
    stream = house.exchange(round=6)
    stream.begin("train", [0, 1], MESSAGE)
    stream.arrivals(1)
    stream.arrivals(1)
    assert list(house.store.save()) == ["0", "1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-7.0.safetensors", "1-7.1.safetensors"]
    rehearsed = House(tmp_path / "none").exchange(keep_memory=False)
    rehearsed.begin("train", [0], MESSAGE)
    assert rehearsed.arrivals(1).ids == (0,)
    assert rehearsed.store.clients() == []


def test_ways_take_time_by_all_their_bytes(tmp_path: Path) -> None:
    """40 bytes a second: 1 s for the message, 0.3 s for the answer; 1 also has 80 bytes of its own, and so 2 s more."""
    house = House(tmp_path, mbit=np.full(5, 40 * 8 / 1e6))
    stream = house.exchange()
    stream.begin("train", [0, 1], MESSAGE, {1: {"note": {"n": torch.zeros(20)}}})
    assert house.clock.answers == {"train": 12}
    assert stream.arrivals(1).ids == (0,)
    assert house.clock.now == pytest.approx(1 + 1 + 0.3)
    assert stream.arrivals(1).ids == (1,)
    assert house.clock.now == pytest.approx(2 + 1 + 2 + 0.3)
    assert stream.bytes_down == 2 * 40 + 80


def test_a_failure_that_is_not_tolerated_ends_the_run(tmp_path: Path) -> None:
    stream = House(tmp_path, 1).exchange(round=2)
    stream.begin("train", [0, 1], MESSAGE)
    with pytest.raises(RunError, match="round 3: 1 of 2 clients failed in task 'train'"):
        stream.arrivals(2)
