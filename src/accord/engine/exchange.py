"""The door between a method's `round` and whoever runs the clients: memory in and out, byte counts, who is missing.

`collect` is the policy for answers, the same for a simulation and for nodes on a network; `LocalExchange` is the door
to an executor on this machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from accord.client import Answer, Draws, Executor, Request, Work
from accord.core.keys import Key
from accord.core.tensors import Trees, num_bytes
from accord.core.types import Exchange, Replies
from accord.engine.store import ClientStore
from accord.errors import DivergedError, RunError
from accord.filters import NO_FILTERS, Filters

DROPPED_OUT = "dropped out (simulated)"


class RoundExchange(Exchange, Protocol):
    """An `Exchange` that lives for one round and counts what passes."""

    bytes_up: int
    bytes_down: int
    missing: dict[int, str]


class EmptyRound(RunError):  # noqa: N818 - nothing is wrong with a round that has it
    """Too few clients took part to make a round, and nobody failed: it is skipped, and the run goes on."""


@dataclass(frozen=True)
class Policy:
    """Which answers make an exchange.

    At least `minimum` clients must answer. Of those asked, a share of `tolerate` may fail; more end the run. Clients
    that drop out are no failures. One whose training diverged ends a simulation, where it can be looked into, and is
    left out of a real federation (`diverged_ends`), where it cannot.
    """

    minimum: int = 1
    tolerate: float = 0.0
    diverged_ends: bool = True


def collect(
    task: str,
    round: int,
    asked: Sequence[int],
    answers: Iterable[Answer],
    policy: Policy,
    absent: Mapping[int, str],
    name_of: Callable[[int], str] = str,
) -> tuple[list[Answer], dict[int, str]]:
    """The good answers ordered by client id, and who is missing, with the reason; `absent` were never reached."""
    missing = {client: absent[client] for client in sorted(absent)}
    good: list[Answer] = []
    failed = 0
    for answer in sorted(answers, key=lambda answer: answer.client):
        if answer.fatal and policy.diverged_ends:
            who = name_of(answer.client)
            raise DivergedError(answer.error if who == str(answer.client) else f"{who}: {answer.error}")
        if answer.result is None:
            missing[answer.client] = answer.error
            failed += 1
        else:
            good.append(answer)
    if failed > math.floor(policy.tolerate * len(asked) + 1e-9):
        reasons = "\n".join(f"client {name_of(c)}: {why.strip()}" for c, why in missing.items() if c not in absent)
        raise RunError(
            f"round {round + 1}: {failed} of {len(asked)} clients failed in task {task!r}, and at most "
            f"{100 * policy.tolerate:g} % may (clients.tolerate): mend the cause, or raise clients.tolerate to go on "
            f"without them.\n{_shortened(reasons)}"
        )
    if len(good) < max(1, min(policy.minimum, len(asked))):
        raise EmptyRound(
            f"{len(good)} of {len(asked)} clients answered task {task!r}, at least {max(1, policy.minimum)} are needed "
            "(clients.minimum)"
        )
    return good, missing


def _shortened(text: str, limit: int = 4000) -> str:
    return text if len(text) <= limit else f"{text[:limit]}\n..."


class LocalExchange:
    """An `Exchange` over one executor. One is made per round, so its counters are the round's."""

    def __init__(
        self,
        executor: Executor,
        store: ClientStore,
        key: Key,
        round: int,
        lr: float,
        *,
        policy: Policy | None = None,
        drop_rate: float = 0.0,
        keep_memory: bool = True,
        name_of: Callable[[int], str] = str,
        filters: Filters = NO_FILTERS,
    ) -> None:
        self.executor, self.store, self.key = executor, store, key
        self.round, self.lr = round, lr
        self.policy, self.drop_rate, self.keep_memory = policy or Policy(), drop_rate, keep_memory
        self.name_of, self.filters = name_of, filters
        self.carried: Trees = {}  # the first answer of the last exchange, as it would lie on the wire
        self.bytes_down = self.bytes_up = 0
        self.missing: dict[int, str] = {}
        self._exchanges = 0

    def __call__(
        self, task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees] | None = None
    ) -> Replies:
        """Run `task` on `clients` and return what came back, ordered by client id."""
        private = private or {}
        absent = {client: DROPPED_OUT for client in sorted(clients) if self._drops(task, client)}
        reached = [client for client in sorted(clients) if client not in absent]
        works = [Work(client, private.get(client, {}), self.store.get(client)) for client in reached]
        self.bytes_down += len(works) * num_bytes(shared) + sum(num_bytes(work.private) for work in works)
        request = Request(task, self.round, self.lr, shared, works)
        answers = self.executor.run(request) if works else []
        try:
            good, missing = collect(task, self.round, clients, answers, self.policy, absent, self.name_of)
        except EmptyRound:
            self.missing |= absent | {a.client: a.error for a in answers if a.result is None}
            raise
        self.missing |= missing
        results, work_of = [], {work.client: work for work in works}
        for answer in good:
            assert answer.result is not None
            draws = Draws(self.key.client(answer.client), task, self.round)
            left = self.filters.outgoing(task, request, work_of[answer.client], answer.result, draws)
            self.bytes_up += num_bytes(left.reply)
            if self.keep_memory:
                self.store.put(answer.client, (self.round + 1, self._exchanges), left.memory)
            self.carried = left.reply if not results else self.carried
            results.append(left._replace(reply=self.filters.incoming(task, shared, left.reply)))
        self._exchanges += 1
        ids = tuple(answer.client for answer in good)
        replies = Replies(ids, tuple(results), torch.tensor(self.store.sizes[list(ids)]), missing)
        return self.filters.together(task, shared, replies, self.key, self.round)

    def _drops(self, task: str, client: int) -> bool:
        if not self.drop_rate:
            return False
        return bool(self.key.at(f"drop.{task}", self.round, client).random() < self.drop_rate)
