"""The clients' own models at the end of a run: the ones they are judged by, after their last training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from accord.core.task import LocalTraining, Task
from accord.core.tensors import Tree, Trees, num_bytes
from accord.core.types import Exchange, Replies
from accord.engine.federation import Federation

TASK = "personal"  # trains as `train` does, to the bit, and answers with the client's own model


@dataclass(frozen=True)
class OwnModels:
    """Gathers them from the last exchange of a run. `why_not` says why none are kept, where some could be."""

    task: LocalTraining | None
    members: Sequence[int]
    why_not: str = ""
    found: dict[int, Trees] = field(default_factory=dict)

    @classmethod
    def of(cls, federation: Federation) -> OwnModels:
        """For methods that are about them, as far as they may be kept."""
        algorithm, members = federation.algorithm, federation.facts.members
        if not algorithm.personal:
            return cls(None, members)
        budget = federation.filters.budget
        if budget is not None and budget.protection.unit == "client":
            return cls(None, members, f"privacy.name = {budget.name!r} keeps the clients' own models with them")
        train, most = algorithm.tasks["train"], federation.config.checkpoint.personal_mb
        if not isinstance(train, LocalTraining):
            return cls(None, members, "its clients train in a way of its own, which does not hand their models over")
        size = num_bytes(dict(zip(("model", "buffers"), train.model.init(), strict=True)))
        if len(members) * size > most << 20:
            total = len(members) * size / (1 << 20)
            return cls(
                None,
                members,
                f"{len(members)} models would take {total:,.1f} MB, and checkpoint.personal_mb = {most} allows no more",
            )
        return cls(replace(train, hands_over=True), members)

    @property
    def tasks(self) -> Mapping[str, Task]:
        """What clients are to be able to do for it."""
        return {} if self.task is None else {TASK: self.task}

    def watching(self, exchange: Exchange) -> Exchange:
        """The same exchange; where all clients train for the last time they hand their models over."""
        if self.task is None:
            return exchange

        def ask(
            task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees] | None = None
        ) -> Replies:
            if task != "train" or list(clients) != list(self.members):
                return exchange(task, clients, shared, private)
            replies = exchange(TASK, clients, shared, private)
            for client, result in zip(replies.ids, replies.results, strict=True):
                self.found[client] = {name: _kept(tree) for name, tree in result.reply.items()}
            return replies

        return ask

    def complete(self, exchange: Exchange, message: Trees) -> None:
        """Ask for them if nobody has."""
        if self.task is not None and not self.found:
            self.watching(exchange)("train", self.members, message)


def _kept(tree: Tree) -> Tree:
    return {name: tensor.detach().cpu().clone() for name, tensor in tree.items()}
