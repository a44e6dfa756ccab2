"""The door between a method's `round` and an executor: memory in and out, byte counts, drop-outs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from accord.core.keys import Key
from accord.core.tensors import Trees, num_bytes
from accord.core.types import Replies
from accord.engine.client import Executor, Request, Work
from accord.engine.store import ClientStore
from accord.errors import DivergedError, RunError


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
        minimum: int = 1,
        drop_rate: float = 0.0,
        keep_memory: bool = True,
    ) -> None:
        self.executor, self.store, self.key = executor, store, key
        self.round, self.lr = round, lr
        self.minimum, self.drop_rate, self.keep_memory = minimum, drop_rate, keep_memory
        self.bytes_down = self.bytes_up = 0
        self.missing: dict[int, str] = {}

    def __call__(
        self, task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees] | None = None
    ) -> Replies:
        """Run `task` on `clients` and return what came back, ordered by client id."""
        private = private or {}
        reached = [client for client in sorted(clients) if not self._drops(task, client)]
        works = [Work(client, private.get(client, {}), self.store.get(client)) for client in reached]
        self.bytes_down += len(works) * num_bytes(shared) + sum(num_bytes(work.private) for work in works)
        answers = self.executor.run(Request(task, self.round, self.lr, shared, works)) if works else []
        answers.sort(key=lambda answer: answer.client)

        missing = dict.fromkeys(sorted(set(clients).difference(reached)), "dropped out (simulated)")
        for answer in answers:
            if answer.fatal:
                raise DivergedError(answer.error)
            if answer.result is None:
                missing[answer.client] = answer.error
        good = [answer for answer in answers if answer.result is not None]
        if len(good) < max(1, min(self.minimum, len(clients))):
            reasons = "\n".join(f"client {client}: {why}" for client, why in list(missing.items())[:3])
            raise RunError(
                f"round {self.round + 1}: {len(good)} of {len(clients)} clients answered task {task!r}, "
                f"at least {max(1, self.minimum)} are needed (clients.minimum).\n{reasons}"
            )
        results = []
        for answer in good:
            assert answer.result is not None
            self.bytes_up += num_bytes(answer.result.reply)
            if self.keep_memory:
                self.store.put(answer.client, self.round, answer.result.memory)
            results.append(answer.result)
        self.missing |= missing
        ids = tuple(answer.client for answer in good)
        return Replies(ids, tuple(results), torch.tensor(self.store.sizes[list(ids)]), missing)

    def _drops(self, task: str, client: int) -> bool:
        if not self.drop_rate:
            return False
        return bool(self.key.at(f"drop.{task}", self.round, client).random() < self.drop_rate)
