"""Who is hostile, and where it happens: in the labels before a run, or in the answers before they leave the client.

Only updates are changed (`accord.core.disclosure`): weights, gradients, control variates. A tensor's change is what the
client sends less what it received under the same names; of what it did not receive, all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from accord.attacks.attack import Attack, Change
from accord.client import Answer, Executor, Request
from accord.config import AttackConfig
from accord.core.disclosure import Declared, Disclosure, kind_of
from accord.core.keys import Key
from accord.core.tensors import Tree
from accord.data.federated import FederatedData
from accord.errors import ConfigError


@dataclass(frozen=True)
class Hostile:
    """The hostile clients of a run and what they do."""

    name: str
    attack: Attack
    clients: tuple[int, ...]
    key: Key

    @classmethod
    def of(cls, asked: AttackConfig, attack: Attack, members: Sequence[int], key: Key) -> Hostile:
        """Those named, or a share of the members, rounded down but somebody, drawn from the run's seed."""
        named = asked.clients
        if strangers := sorted(set(named) - set(members)):
            raise ConfigError(
                f"attack.clients names client {strangers[0]}, which does not train; those that do: "
                f"{members[0]} to {members[-1]}"
            )
        count = max(1, int(asked.share * len(members) + 1e-9))
        drawn = key.at("attackers").choice(np.asarray(members), count, replace=False)
        return cls(asked.name, attack, tuple(sorted(set(named) or {int(client) for client in drawn})), key)

    def poisoned(self, data: FederatedData) -> FederatedData:
        """The data with the hostile clients' labels."""
        if self.attack.labels is None:
            return data
        if data.problem != "classification":
            raise ConfigError(
                f"attack {self.name} exchanges classes, and the task {data.problem} has none; choose another attack"
            )
        rows = np.concatenate([data.train[client] for client in self.clients])
        honest = [data.train[client] for client in range(len(data)) if client not in self.clients]
        held = np.concatenate([*honest, data.validation.order])
        if np.isin(rows, held).any():
            raise ConfigError(
                f"attack {self.name}: clients {list(self.clients)} share samples with others, whose labels would be "
                "wrong too; divide the data so that no sample has two owners, or choose another attack"
            )
        y = data.train_pool.y.clone()
        y[rows] = self.attack.labels(y[rows], data.num_classes)
        return replace(data, train_pool=replace(data.train_pool, y=y))

    def note(self, clients: int) -> str:
        """What is printed beside every result."""
        some = ", ".join(map(str, self.clients[:8])) + (", ..." if len(self.clients) > 8 else "")
        return f"simulated attack: {self.name} by {len(self.clients)} of {clients} clients ({some})"


class Attacked:
    """An executor whose hostile clients send something else than they found."""

    def __init__(self, inner: Executor, hostile: Hostile, change: Change, tasks: Mapping[str, Declared]) -> None:
        self.inner, self.hostile, self.change, self.tasks = inner, hostile, change, tasks

    def run(self, request: Request) -> list[Answer]:
        return [self._sent(request, answer) for answer in self.inner.run(request)]

    def close(self) -> None:
        self.inner.close()

    def _sent(self, request: Request, answer: Answer) -> Answer:
        said = self.tasks.get(request.task)
        if answer.result is None or said is None or answer.client not in self.hostile.clients:
            return answer
        rng = self.hostile.key.at(f"attack.{request.task}", request.round, answer.client)
        reply = {
            name: self._moved(request.shared.get(name, {}), tree, rng)
            if kind_of(said, name) is Disclosure.UPDATE
            else tree
            for name, tree in answer.result.reply.items()
        }
        return replace(answer, result=answer.result._replace(reply=reply))

    def _moved(self, received: Tree, tree: Tree, rng: np.random.Generator) -> Tree:
        sent = dict(tree)
        for name in sorted(tree):
            if tree[name].is_floating_point():
                start = received.get(name, torch.zeros_like(tree[name]))
                sent[name] = start + self.change(tree[name] - start, rng)
        return sent
