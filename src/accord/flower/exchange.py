"""An exchange over Flower: the server's door to nodes, with versions, a journal, a deadline, and checks of all answers.

A node that does not answer, answers nonsense or diverges is left out of the exchange, with the reason; it never ends
the run. Fewer answers than the minimum are waited for as long as it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from accord.client import Answer
from accord.core.tensors import Trees
from accord.core.types import Replies, Result
from accord.engine.checkpoint import to_device
from accord.engine.exchange import Policy, collect
from accord.flower.asking import Asking, Manner
from accord.flower.journal import Taken, request_digest
from accord.flower.sessions import Session
from accord.wire.codec import encode


@dataclass
class FlowerExchange:
    """An `Exchange`; one is made per round, so its counters are the round's."""

    session: Session
    round: int
    lr: float
    manner: Manner = field(default_factory=Manner)
    bytes_up: int = 0
    bytes_down: int = 0
    missing: dict[int, str] = field(default_factory=dict)
    _exchanges: int = 0

    def __call__(
        self, task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees] | None = None
    ) -> Replies:
        """Ask `clients`, or find what they answered before the server was stopped."""
        asked, private = sorted(clients), private or {}
        alone = {client: encode(private[client]) for client in asked if client in private}
        common = encode(shared)
        digest = request_digest(
            task, asked, self.round, self.lr, {"shared": common, **{str(c): b for c, b in alone.items()}}
        )
        key = (self.label, self.manner.kind, self._exchanges)
        taken = self.session.journal.find(key, digest)
        if taken is None:
            asking = Asking(self, task, shared, common)
            for client in asked:
                asking.add(client, private.get(client))
            taken = asking.done()
            self.session.journal.keep(key, digest, taken)
        replies = self._take(task, asked, taken)
        return self.session.filters.together(task, shared, replies, self.session.key, self.round)

    def _here(self, result: Result) -> Result:
        """Where the server computes."""
        device = self.session.device
        return Result(to_device(result.reply, device), {}, to_device({"m": result.metrics}, device)["m"])

    @property
    def label(self) -> int:
        """The round as versions count it: 0 before the first."""
        return 0 if self.manner.kind == "start" else self.round + 1

    @property
    def version(self) -> tuple[int, int]:
        """Of the memory that clients make in the coming exchange."""
        return self.label, self._exchanges

    def _take(self, task: str, asked: Sequence[int], taken: Taken) -> Replies:
        """Count it, and go on from it."""
        self._exchanges += 1
        self.bytes_up += taken.bytes_up
        self.bytes_down += taken.bytes_down
        self.missing |= taken.missing
        answers = [Answer(client, self._here(result)) for client, result in taken.results.items()]
        policy = Policy(self.session.minimum if self.manner.waits else 1, tolerate=1.0, diverged_ends=False)
        good, missing = collect(task, self.round, asked, answers, policy, taken.missing, self.session.roster.name_of)
        if self.manner.keeps:
            for client, memory in taken.memory.items():
                if memory is not None:
                    self.session.versions.advance(client, memory)
        ids = tuple(answer.client for answer in good)
        sizes = self.session.roster.sizes(self.round)
        results = tuple(answer.result for answer in good if answer.result is not None)
        return Replies(ids, results, torch.tensor(sizes[list(ids)]), missing)
