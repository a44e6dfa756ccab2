"""The simulation as a stream of arrivals (`core.types.Streaming`): clients at work, in the order of a simulated clock.

Nothing is computed before it arrives: who comes when follows from the clock alone, so those who arrive together are run
together, by any executor, and work that is under way is kept as who, since when, and from which message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from accord.client import Answer
from accord.core.tensors import Trees, num_bytes
from accord.core.types import Began, Own, Replies
from accord.engine.exchange import DROPPED_OUT, EmptyRound, LocalExchange, collect
from accord.errors import RunError
from accord.pace.clock import Flight, Message, too_late


class _Waiting(NamedTuple):
    name: str  # of the message
    message: Message
    client: int


class StreamingExchange(LocalExchange):
    """A `LocalExchange` that is `Streaming` too."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._queue: list[_Waiting] = []
        self._slots = 0  # places there are for clients at work; 0: any number
        self._begun = 0  # messages
        self._ended: set[int] = set()  # clients that came to an end in this round
        self._arrived = 0
        self._since = self.clock.now

    def begin(
        self, task: str, clients: Sequence[int], shared: Trees, private: Own = None, *, version: int = 0, slots: int = 0
    ) -> None:
        """Those for whom there is a place begin now, the others as soon as there is one."""
        if self.filters.central:
            raise RunError("central privacy needs the answers of a round together: use privacy.name = 'local'")
        name = f"{self.round}-{self._begun}"
        self._begun += 1
        message = Message(task, self.round, self.lr, version, shared, private or {})
        self._queue += [_Waiting(name, message, client) for client in clients]
        self._slots = slots
        self._weigh(task, clients, shared, private or {})
        self._fill()

    def arrivals(self, count: int) -> Replies:
        """Whoever comes first by the clock."""
        good: list[tuple[Answer, Began]] = []
        missing: dict[int, str] = {}
        while len(good) < count and (landed := self._landed(count - len(good), missing)):
            found, failed = self._answers(landed)
            good += found
            missing |= failed
        self.missing |= missing
        enough = max(1, min(self.policy.minimum, count))
        if self._arrived + len(good) < enough:
            if self.clock.now == self._since:
                self.clock.wait()
            raise EmptyRound(
                f"{self._arrived + len(good)} answered and nobody else is at work, at least {enough} are needed "
                "(clients.minimum)"
            )
        self._arrived += len(good)
        return self._accepted(good, missing)

    def _fill(self) -> None:
        """Clients begin, in the order in which they wait, as long as there are places."""
        busy = self.clock.at_work()
        if not self._queue or (self._slots and len(busy) >= self._slots):
            return
        there = set(self.clock.present(self.round, [one.client for one in self._queue])) - busy - self._ended
        staying: list[_Waiting] = []
        for place, one in enumerate(self._queue):
            if self._slots and len(busy) >= self._slots:
                staying += self._queue[place:]
                break
            if one.client not in there:
                staying.append(one)
            elif self._depart(one):
                busy.add(one.client)
                there.remove(one.client)
        self._queue = staying

    def _depart(self, one: _Waiting) -> bool:
        """Whether the client is at work now; one that drops out never answers, and takes no place."""
        message = one.message
        if self._drops(message.task, one.client):
            self.missing[one.client] = DROPPED_OUT
            return False
        sent = num_bytes(message.shared) + num_bytes(message.private.get(one.client, {}))
        self.bytes_down += sent
        self.clock.depart(one.name, message, one.client, self.clock.seconds(message.task, one.client, sent))
        return True

    def _landed(self, count: int, missing: dict[int, str]) -> list[tuple[Message, Flight]]:
        """The next `count` that come in time; those who are late are noted, and leave their places to others."""
        landed: list[tuple[Message, Flight]] = []
        while len(landed) < count:
            self._fill()
            found = self.clock.land()
            if found is None:
                break
            message, flight = found
            self._ended.add(flight.client)
            if flight.late:
                missing[flight.client] = too_late(flight.late, self.clock.deadline)
            else:
                landed.append((message, flight))
        return landed

    def _answers(self, landed: Sequence[tuple[Message, Flight]]) -> tuple[list[tuple[Answer, Began]], dict[int, str]]:
        """What they answer, message by message, and who failed."""
        asked: dict[int, list[int]] = {}
        messages = {id(message): message for message, _ in landed}
        for message, flight in landed:
            asked.setdefault(id(message), []).append(flight.client)
        answers: list[Answer] = []
        began: dict[int, Began] = {}
        for key, clients in asked.items():
            message = messages[key]
            begun = message.round, message.lr
            answers += self._asked(message.task, sorted(clients), message.shared, message.private, begun=begun)
            began |= dict.fromkeys(clients, Began(message.version, message.shared))
        policy = replace(self.policy, minimum=1)
        task, everyone = landed[0][0].task, sorted(began)
        try:
            good, missing = collect(task, self.round, everyone, answers, policy, {}, self.name_of)
        except EmptyRound:
            return [], {answer.client: answer.error for answer in answers}
        return [(answer, began[answer.client]) for answer in good], missing

    def _accepted(self, good: Sequence[tuple[Answer, Began]], missing: Mapping[int, str]) -> Replies:
        """The server has them: bytes are counted, and what clients keep is kept."""
        ordered = sorted(good, key=lambda one: one[0].client)
        results = [self._taken(answer) for answer, _ in ordered]
        self._exchanges += 1
        ids = tuple(answer.client for answer, _ in ordered)
        examples = torch.tensor(self.store.sizes[list(ids)])
        return Replies(ids, tuple(results), examples, missing, tuple(began for _, began in ordered))
