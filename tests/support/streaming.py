"""What every `Streaming` exchange promises, whoever carries its messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accord.core.types import Replies, Streaming
from support.federation import TinyRun, equal_trees

Make = Callable[[TinyRun], Streaming]  # an exchange for the run's round


def check_streaming(make: Make, **options: Any) -> None:
    """Put an exchange through the protocol; `options` are the run's. All four clients must be able to answer."""
    run = TinyRun("fedavg", **options)
    message = run.algorithm.message(run.state)
    alone = dict(_synchronous(message, options))
    stream = make(run)
    stream.begin("train", [2, 0, 3, 1], message, version=7)
    first = stream.arrivals(3)
    _check_form(first)
    assert len(first) == 3, "as many come as are asked for, where as many are at work"
    last = stream.arrivals(3)
    _check_form(last)
    assert len(last) == 1, "fewer come where no more can"
    assert sorted((*first.ids, *last.ids)) == [0, 1, 2, 3], "whoever begins answers once"
    for replies in (first, last):
        for client, result, began in zip(replies.ids, replies.results, replies.began, strict=True):
            assert began.version == 7
            assert equal_trees(dict(began.shared), message), "the message it began from comes with the answer"
            assert equal_trees(result.reply, alone[client]), "the same work as in an exchange that waits"
    _check_places(make, options)
    _check_once_a_round(make, options)


def _synchronous(message: Any, options: dict[str, Any]) -> list[tuple[int, Any]]:
    run = TinyRun("fedavg", **{**options, "pace": None})
    replies = run.exchange()("train", [0, 1, 2, 3], message)
    return [(client, result.reply) for client, result in zip(replies.ids, replies.results, strict=True)]


def _check_form(replies: Replies) -> None:
    assert list(replies.ids) == sorted(replies.ids), "ordered by client id, not by arrival"
    assert len(replies.began) == len(replies.results) == len(replies.examples) == len(replies.ids)


def _check_places(make: Make, options: dict[str, Any]) -> None:
    """With one place clients come in the order in which they were named; the others were never asked."""
    run = TinyRun("fedavg", **options)
    stream = make(run)
    stream.begin("train", [3, 1, 0, 2], run.algorithm.message(run.state), slots=1)
    assert [stream.arrivals(1).ids for _ in range(2)] == [(3,), (1,)]


def _check_once_a_round(make: Make, options: dict[str, Any]) -> None:
    """Who is at work, or has answered, does not begin again in the same round."""
    run = TinyRun("fedavg", **options)
    stream, message = make(run), run.algorithm.message(run.state)
    stream.begin("train", [1, 0], message, version=1)
    assert stream.arrivals(2).ids == (0, 1)
    stream.begin("train", [0, 2], message, version=2)
    again = stream.arrivals(2)
    assert again.ids == (2,)
    assert again.began[0].version == 2
