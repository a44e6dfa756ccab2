"""Rounds, one after another: ask, fold, judge. Who carries the messages, and who judges, is given."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from accord.core.algorithm import Algorithm
from accord.core.tensors import finite
from accord.core.types import Replies, State, World
from accord.engine.exchange import EmptyRound, RoundExchange, Timed
from accord.engine.missing import named
from accord.errors import DivergedError

Record = dict[str, Any]


# What is measured after a round (0 is the first), from the state before it, the state after it, and the replies.
Judge = Callable[[int, State, State, Replies], Record]


class Clock:
    """Seconds per phase of a round."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """The time since the last lap was `name`'s."""
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 6)
        self._last = now


class Completed(NamedTuple):
    """A round that is done."""

    round: int  # rounds done so far
    state: State
    record: Record  # its line in metrics.jsonl
    clock: Clock


@dataclass(frozen=True)
class Loop:
    """All a run does between its first state and its last."""

    algorithm: Algorithm
    world: Callable[[int], World]
    exchange: Callable[[int], RoundExchange]
    judge: Judge
    phase: Callable[[int, str], None] = lambda round, name: None  # told what begins

    def rounds(self, state: State, first: int, last: int) -> Iterator[Completed]:
        """Rounds `first` to `last` - 1, each on the state the one before it left."""
        for round in range(first, last):
            clock = Clock()
            self.phase(round + 1, "train")
            exchange = self.exchange(round)
            try:
                new, replies = self.algorithm.round(state, self.world(round), exchange)
            except EmptyRound as reason:
                new, replies = state, Replies((), (), torch.zeros(0, dtype=torch.int64), exchange.missing)
                record = _record(round, replies, exchange) | {"skipped": str(reason)}
            else:
                check_state(round, new)
                record = _record(round, replies, exchange)
                if reported := self.algorithm.metrics(new):
                    record["server"] = reported
            clock.lap("train")
            self.phase(round + 1, "evaluate")
            record |= self.judge(round, state, new, replies)
            clock.lap("evaluate")
            state = new
            yield Completed(round + 1, state, record, clock)


def check_state(round: int, state: State) -> None:
    """Stop where the server's own step diverged, before anything is kept of it: the clients' answers were finite."""
    if finite(state):
        return
    broken = {name: [leaf for leaf, t in tree.items() if not finite({name: {leaf: t}})] for name, tree in state.items()}
    places = [
        f"{name} ({', '.join(leaves[:2])}{', ...' if len(leaves) > 2 else ''})"
        for name, leaves in broken.items()
        if leaves
    ]
    raise DivergedError(
        f"training diverged in round {round + 1}: the clients' answers were finite, but what the server made of them "
        f"is not, in {'; '.join(places)}. Lower the method's own rates (`accord explain` lists them) or local.lr."
    )


def _record(round: int, replies: Replies, exchange: RoundExchange) -> Record:
    seen = replies.metric("seen").sum() if len(replies) else 0
    record: Record = {
        "round": round + 1,
        "loss": float(replies.metric("loss").sum() / seen) if seen > 0 and replies.measured("loss") else None,
        "cohort": list(replies.ids),
        "bytes_up": exchange.bytes_up,
        "bytes_down": exchange.bytes_down,
    }
    if isinstance(exchange, Timed) and exchange.seconds is not None:
        record["clock"] = exchange.seconds
    if exchange.missing:
        record["missing"] = named(exchange.missing)
    return record
