"""The filters of a run as one object, between a method and the wire: the same in a simulation and on a network.

    client:   task -> outgoing (clip, local noise, compression) -> wire
    server:   wire -> incoming (as the method knows it) -> together (central noise) -> method

What clients remember for filters lies in their ordinary memory, in trees whose names begin with `filter.`, so it is
resumed, versioned and kept on a node's own disk as everything else is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from accord.client import Draws, Request, Work
from accord.core.keys import Key
from accord.core.tensors import Tree, Trees, ordered_trees
from accord.core.types import Replies, Result
from accord.errors import RunError
from accord.filters.budget import Budget
from accord.filters.changes import OWN, applied, changes, clipped, noised
from accord.filters.compression import Compression
from accord.filters.protections import Central, Local

# Of a client's own numbers, those that follow from how many samples it has, or were asked for by evaluate.personal.
HARMLESS = frozenset({"steps", "seen", "personal_before", "personal_correct", "personal_examples"})


@dataclass(frozen=True)
class Filters:
    """What is done to the answers of the tasks in `tasks`; those of others pass as they are.

    Of each task it says which trees are updates: only these are compressed. Sums of losses and statistics are exact.
    """

    budget: Budget | None = None
    compression: Compression = Compression()  # noqa: RUF009 - frozen, so it can be shared
    tasks: Mapping[str, frozenset[str]] = field(default_factory=lambda: {"train": frozenset({"model"})})

    @property
    def on(self) -> bool:
        """Whether there are any."""
        return self.budget is not None or self.compression.on

    @property
    def central(self) -> bool:
        """Whether the server adds noise to the mean of all answers: they have to be there together."""
        return self.budget is not None and isinstance(self.budget.protection, Central)

    def outgoing(self, task: str, request: Request, work: Work, result: Result, draws: Draws) -> Result:
        """What leaves a client, and what it remembers. `draws` are its own: who knows them can take noise off again."""
        kept = {name: tree for name, tree in (work.memory or {}).items() if name.startswith(OWN)}
        if not self.on or task not in self.tasks:
            return _remembering(result, kept)
        reply, metrics = result.reply, result.metrics
        if self.budget is not None:
            metrics = {name: value for name, value in metrics.items() if name in HARMLESS}
            reply = self._bounded(request.shared, reply, draws)
        if self.compression.on:
            rng = draws.filter("compression")
            reply, new = self.compression.packed(request.shared, reply, kept, rng, self.tasks[task])
            kept |= new
        return _remembering(Result(reply, result.memory, metrics), kept)

    def incoming(self, task: str, shared: Mapping[str, Tree], reply: Trees) -> Trees:
        """The answer as the method knows it; DataError for one that no client with these filters sends."""
        if task not in self.tasks or not self.compression.on:
            return reply
        return self.compression.unpacked(shared, reply)

    def together(self, task: str, shared: Mapping[str, Tree], replies: Replies, key: Key, round: int) -> Replies:
        """The answers of a round. Under central privacy each is the same: their mean with noise, and nothing else.

        Whatever a method's server does with them is then as private as that mean, whichever rule it follows.
        """
        if self.budget is None or not self.central or task not in self.tasks:
            return replies
        limit, device = self.budget.protection.clip, _device(replies)
        total: Trees = {}
        for result in replies.results:
            _only_real(result.reply)
            for name, tree in clipped(changes(shared, result.reply), limit).items():
                mine = total.setdefault(name, {})
                for leaf, change in tree.items():
                    mine[leaf] = mine[leaf] + change if leaf in mine else change
        total = noised(total, self.budget.deviation, key.at(f"privacy.{task}", round))
        count = self.budget.denominator or len(replies)
        mean = {name: {leaf: (t / count).to(device) for leaf, t in tree.items()} for name, tree in total.items()}
        reply = applied(shared, replies.results[0].reply, mean)
        return replace(replies, results=tuple(result._replace(reply=reply) for result in replies.results))

    def _bounded(self, shared: Mapping[str, Tree], reply: Trees, draws: Draws) -> Trees:
        """Clipped as the protection wants it; with the client's own noise where it is local."""
        assert self.budget is not None
        if not isinstance(self.budget.protection, Central | Local):
            return reply  # every step was clipped and noised
        _only_real(reply)
        changed = clipped(changes(shared, reply), self.budget.protection.clip)
        if isinstance(self.budget.protection, Local):
            changed = noised(changed, self.budget.deviation, draws.filter("privacy"))
        return applied(shared, reply, changed)

    def words(self) -> list[str]:
        """What is in force, a line each."""
        said = [] if self.budget is None else [f"privacy: {self.budget.words()}"]
        if self.compression.on:
            said.append(f"compression: {self.compression.words()}")
        return said


NO_FILTERS = Filters()


def _remembering(result: Result, kept: Trees) -> Result:
    """With the filters' own trees beside the task's."""
    return result._replace(memory=ordered_trees({**result.memory, **kept})) if kept else result


def _only_real(reply: Trees) -> None:
    """Whole numbers cannot be clipped and noised: they are refused, never sent as they are."""
    for name, tree in reply.items():
        for leaf, tensor in tree.items():
            if not tensor.is_floating_point():
                raise RunError(
                    f"the answer's {name}/{leaf} holds whole numbers ({tensor.dtype}), which privacy cannot clip: "
                    "choose another method, or privacy.name = sample or none"
                )


def _device(replies: Replies) -> torch.device:
    for result in replies.results:
        for tree in result.reply.values():
            for tensor in tree.values():
                return tensor.device
    return torch.device("cpu")
