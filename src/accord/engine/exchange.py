"""The door between a method's `round` and whoever runs the clients: memory in and out, byte counts, who is missing.

`collect` is the policy for answers, the same for a simulation and for nodes on a network; `LocalExchange` is the door
to an executor on this machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch

from accord.client import Answer, Draws, Executor, Request, Sums, Work
from accord.core.keys import Key
from accord.core.tensors import Trees, num_bytes
from accord.core.types import Exchange, Replies, Result
from accord.engine.store import ClientStore
from accord.errors import DivergedError, RunError
from accord.filters import NO_FILTERS, Filters
from accord.pace import Clock

DROPPED_OUT = "dropped out (simulated)"


class RoundExchange(Exchange, Protocol):
    """An `Exchange` that lives for one round and counts what passes."""

    bytes_up: int
    bytes_down: int
    missing: dict[int, str]


@runtime_checkable
class Timed(Protocol):
    """An exchange in which simulated time passes."""

    @property
    def seconds(self) -> float | None:
        """Since the run began; None where no time is simulated."""
        ...


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
        clock: Clock | None = None,
        cohort: tuple[int, int] = (0, 0),
        sums: Sums | None = None,
    ) -> None:
        self.executor, self.store, self.key = executor, store, key
        self.round, self.lr = round, lr
        self.policy, self.drop_rate, self.keep_memory = policy or Policy(), drop_rate, keep_memory
        self.name_of, self.filters = name_of, filters
        self.carried: dict[int, Trees] = {}  # the clients' last answers, as they would lie on the wire
        self.clock = clock or Clock(key)
        self.sums = sums  # of the task `train`
        self.cohort = cohort  # how many make a round, and how many are asked so that enough come early
        self.bytes_down = self.bytes_up = 0
        self.missing: dict[int, str] = {}
        self._exchanges = 0

    @property
    def seconds(self) -> float | None:
        """The simulated time; None where none passes."""
        return self.clock.now if self.clock.pace is not None else None

    def __call__(
        self, task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees] | None = None
    ) -> Replies:
        """Run `task` on `clients` and return what came back, ordered by client id."""
        private = private or {}
        absent = {client: DROPPED_OUT for client in clients if self._drops(task, client)}
        reached = sorted(set(clients) - absent.keys())
        self.bytes_down += len(reached) * num_bytes(shared) + sum(num_bytes(private.get(c, {})) for c in reached)
        if self.clock.pace is not None:
            reached, others = self._in_time(task, reached, shared, private)
            absent |= others
        answers = self._asked(task, reached, shared, private)
        try:
            good, missing = collect(task, self.round, clients, answers, self.policy, absent, self.name_of)
        except EmptyRound:
            self.missing |= absent | {a.client: a.error for a in answers if a.result is None}
            raise
        self.missing |= missing
        results = [self._taken(answer) for answer in good]
        self._exchanges += 1
        ids = tuple(answer.client for answer in good)
        replies = Replies(ids, tuple(results), torch.tensor(self.store.sizes[list(ids)]), missing)
        return self.filters.together(task, shared, replies, self.key, self.round)

    def _taken(self, answer: Answer) -> Result:
        """The server has it: bytes are counted, and what the client keeps is kept."""
        assert answer.result is not None
        self.bytes_up += self._weight(answer)
        if self.keep_memory:
            self.store.put(answer.client, (self.round + 1, self._exchanges), answer.result.memory)
        return answer.result

    def _asked(
        self,
        task: str,
        clients: Sequence[int],
        shared: Trees,
        private: Mapping[int, Trees],
        *,
        begun: tuple[int, float] | None = None,
    ) -> list[Answer]:
        """What clients answer, in any order; `begun`: the round in which their work began, and its learning rate."""
        works = [Work(client, private.get(client, {}), self.store.get(client)) for client in clients]
        round, lr = begun or (self.round, self.lr)
        sums = self.sums if task == "train" else None
        request, of = Request(task, round, lr, shared, works, sums), {work.client: work for work in works}
        answers = self.executor.run(request) if works else []
        return [self._filtered(request, of[answer.client], answer) for answer in answers]

    def _filtered(self, request: Request, work: Work, answer: Answer) -> Answer:
        """The answer after its way over the wire."""
        if answer.result is None:
            return answer
        draws = Draws(self.key.client(work.client), request.task, request.round)
        left = self.filters.outgoing(request.task, request, work, answer.result, draws)
        self.carried[work.client] = left.reply
        arrived = self.filters.incoming(request.task, request.shared, left.reply)
        return replace(answer, result=left._replace(reply=arrived))

    def _weight(self, answer: Answer) -> int:
        """Bytes a client sends."""
        return num_bytes(self.carried[answer.client]) if answer.result is not None else 0

    def _in_time(
        self, task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees]
    ) -> tuple[list[int], dict[int, str]]:
        """Those whose answers are waited for, by the clock, and why the others' are not; theirs are never made."""
        self._weigh(task, clients, shared, private)
        common = num_bytes(shared)
        times = {c: self.clock.seconds(task, c, common + num_bytes(private.get(c, {}))) for c in clients}
        enough, asked = self.cohort
        return self.clock.gather(self.round, times, enough if enough < len(clients) <= asked else len(clients))

    def _weigh(self, task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees]) -> None:
        """How large an answer is must be known before anybody's time is: one client tries the task, once in a run."""
        pace = self.clock.pace
        if pace is None or not pace.weighs or task in self.clock.answers or not clients:
            return
        self.clock.answers[task] = self._weight(self._asked(task, [min(clients)], shared, private)[0])

    def _drops(self, task: str, client: int) -> bool:
        if not self.drop_rate:
            return False
        return bool(self.key.at(f"drop.{task}", self.round, client).random() < self.drop_rate)
