"""Clients that answer whenever they are done: any exchange as a stream of arrivals, and arrivals put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from accord.core.tensors import Trees
from accord.core.types import Began, Exchange, Own, Replies, Streaming


def streaming(exchange: Exchange) -> Streaming:
    """The exchange itself where it can; else one in which everybody answers in the order in which they were named."""
    return exchange if isinstance(exchange, Streaming) else InOrder(exchange)


@dataclass(frozen=True, eq=False)
class _Waiting:
    client: int
    task: str
    began: Began
    private: Trees


class InOrder:
    """A stream over an exchange that waits for everyone it asks: clients are asked when their answers are wanted.

    So nobody is at work between two calls, and nothing has to outlive the round.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self._waiting: list[_Waiting] = []
        self._named: set[int] = set()

    def begin(
        self, task: str, clients: Sequence[int], shared: Trees, private: Own = None, *, version: int = 0, slots: int = 0
    ) -> None:
        """Nobody is at work, so there is a place for everybody."""
        alone, began = private or {}, Began(version, shared)
        new = [client for client in clients if client not in self._named]
        self._named.update(new)
        self._waiting += [_Waiting(client, task, began, alone.get(client, {})) for client in new]

    def arrivals(self, count: int) -> Replies:
        """Those named first; of one message at a time."""
        found: list[Replies] = []
        while self._waiting and (wanted := count - sum(map(len, found))) > 0:
            began = self._waiting[0].began
            alike = [one for one in self._waiting[:wanted] if one.began is began]  # they wait side by side
            del self._waiting[: len(alike)]
            private = {one.client: one.private for one in alike if one.private}
            replies = self.exchange(alike[0].task, [one.client for one in alike], began.shared, private or None)
            found.append(replace(replies, began=(began,) * len(replies)))
        return joined(found)


def joined(several: Iterable[Replies]) -> Replies:
    """All answers as one, ordered by client id; nobody may have answered twice."""
    several = list(several)
    entries = [
        (client, result, int(examples), began)
        for replies in several
        for client, result, examples, began in zip(
            replies.ids, replies.results, replies.examples.tolist(), replies.began, strict=True
        )
    ]
    entries.sort(key=lambda entry: entry[0])
    missing = {client: why for replies in several for client, why in replies.missing.items()}
    return Replies(
        tuple(entry[0] for entry in entries),
        tuple(entry[1] for entry in entries),
        torch.tensor([entry[2] for entry in entries], dtype=torch.int64),
        missing,
        tuple(entry[3] for entry in entries),
    )


def only(replies: Replies, kept: Sequence[bool]) -> Replies:
    """Some of the answers."""
    places = [place for place, wanted in enumerate(kept) if wanted]
    return Replies(
        tuple(replies.ids[place] for place in places),
        tuple(replies.results[place] for place in places),
        replies.examples[places],
        replies.missing,
        tuple(replies.began[place] for place in places),
    )
