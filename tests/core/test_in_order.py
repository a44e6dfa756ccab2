"""An exchange that waits for everybody, taken as a stream: who is asked when, with what, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from accord.core.streaming import InOrder, joined, only, streaming
from accord.core.tensors import Trees
from accord.core.types import Began, Replies, Result

MESSAGE: Trees = {"model": {"w": torch.zeros(1)}}
OWN: Trees = {"note": {"n": torch.ones(1)}}


def answers(clients: Sequence[int], missing: Mapping[int, str] | None = None) -> Replies:
    """Each client's number as its answer, and ten times that of samples."""
    results = tuple(Result({"model": {"w": torch.tensor([float(client)])}}, {}, {}) for client in clients)
    return Replies(tuple(clients), results, torch.tensor([10 * client for client in clients]), missing or {})


class Asked:
    """Everybody answers but client 7; what was asked is noted."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, task: str, clients: Sequence[int], shared: Trees, private: Any = None) -> Replies:
        self.calls.append((task, list(clients), shared, private))
        there = sorted(client for client in clients if client != 7)
        return answers(there, {7: "away"} if 7 in clients else None)


def test_clients_are_asked_when_they_are_wanted_in_the_order_of_their_names() -> None:
    exchange = Asked()
    stream = InOrder(exchange)
    stream.begin("train", [5, 2, 9], MESSAGE, version=3)
    assert exchange.calls == []
    first = stream.arrivals(2)
    assert first.ids == (2, 5)
    assert first.examples.tolist() == [20, 50]
    assert [began.version for began in first.began] == [3, 3]
    assert exchange.calls == [("train", [5, 2], MESSAGE, None)], "nobody has a message of its own"
    assert stream.arrivals(2).ids == (9,)
    assert stream.arrivals(2).ids == ()
    assert len(exchange.calls) == 2


def test_who_has_a_message_of_its_own_is_sent_it() -> None:
    exchange = Asked()
    stream = InOrder(exchange)
    stream.begin("train", [5, 2, 9], MESSAGE, {2: OWN, 9: OWN})
    stream.arrivals(2)
    stream.arrivals(1)
    assert [call[3] for call in exchange.calls] == [{2: OWN}, {9: OWN}]


def test_messages_are_not_mixed_and_nobody_is_named_twice() -> None:
    exchange = Asked()
    stream = InOrder(exchange)
    stream.begin("train", [1, 2], MESSAGE, version=1)
    stream.begin("train", [2, 3], MESSAGE, version=2)
    replies = stream.arrivals(5)
    assert [call[1] for call in exchange.calls] == [[1, 2], [3]]
    assert replies.ids == (1, 2, 3)
    assert [began.version for began in replies.began] == [1, 1, 2]


def test_nobody_is_named_again_however_often_others_begin() -> None:
    exchange = Asked()
    stream = InOrder(exchange)
    for client in (1, 2, 1):
        stream.begin("train", [client], MESSAGE)
    assert stream.arrivals(3).ids == (1, 2)
    stream.begin("train", [2, 1, 3], MESSAGE)
    assert stream.arrivals(3).ids == (3,), "who has answered does not begin again"


def test_others_are_asked_in_the_place_of_those_who_do_not_answer() -> None:
    exchange = Asked()
    stream = InOrder(exchange)
    stream.begin("train", [7, 1, 2], MESSAGE)
    replies = stream.arrivals(2)
    assert replies.ids == (1, 2)
    assert dict(replies.missing) == {7: "away"}
    assert [call[1] for call in exchange.calls] == [[7, 1], [2]]


def test_several_answers_are_joined_by_client_and_chosen_from() -> None:
    began = Began(0, MESSAGE), Began(1, MESSAGE)
    late = replace(answers([3, 8], {4: "late"}), began=(began[0],) * 2)
    early = replace(answers([5]), began=(began[1],))
    whole = joined([late, early])
    assert whole.ids == (3, 5, 8)
    assert whole.examples.tolist() == [30, 50, 80]
    assert [one.version for one in whole.began] == [0, 1, 0]
    assert dict(whole.missing) == {4: "late"}
    some = only(whole, [False, True, True])
    assert some.ids == (5, 8)
    assert [float(result.reply["model"]["w"]) for result in some.results] == [5.0, 8.0]
    assert some.examples.tolist() == [50, 80]
    assert [one.version for one in some.began] == [1, 0]
    assert dict(some.missing) == {4: "late"}, "who is missing stays so"


def test_what_is_a_stream_already_is_taken_as_it_is() -> None:
    exchange = Asked()
    stream = streaming(exchange)
    assert isinstance(stream, InOrder)
    assert stream.exchange is exchange
    assert streaming(stream) is stream  # type: ignore[arg-type]
    stream.begin("judge", [4], MESSAGE)
    assert [began.version for began in stream.arrivals(1).began] == [0], "unless it is told another"
    assert exchange.calls[0][0] == "judge"
