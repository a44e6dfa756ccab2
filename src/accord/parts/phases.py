"""Phases: local training in which every step moves only some of the parameters.

Which ones is known before the round begins, by the step's number: head first and body after, network and
discriminator by turns, a last epoch in which nothing moves. What stands still stands still entirely: momentum,
weight decay and Adam's step count do not act on it, and the optimizer of its next turn goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from accord.core.optim import Optimizer, clip_by_norm
from accord.core.task import LocalTraining
from accord.core.tensors import Tree, Trees, clone
from accord.core.types import Batch, Carry, Job

Turns = np.ndarray[Any, np.dtype[np.int64]]  # [S] the number of each step's turn


@dataclass(frozen=True)
class Gated:
    """An optimizer for two groups of a tree, the names in `apart` and the `rest`; a group moves while its gate is 1.

    Each group has an optimizer state of its own, and its gradients are clipped by themselves.
    """

    stacks: ClassVar[bool] = False
    optimizer: Optimizer
    apart: frozenset[str] = frozenset()
    clip: float = 0.0

    @property
    def weight_decay(self) -> float:
        return self.optimizer.weight_decay

    def _groups(self, params: Tree) -> Trees:
        groups: Trees = {"apart": {}, "rest": {}}
        for name, tensor in params.items():
            groups["apart" if name in self.apart else "rest"][name] = tensor
        return groups

    def init(self, params: Tree) -> Trees:
        """Both groups' states, names prefixed, and the gates."""
        like = next(iter(params.values()), torch.zeros(()))
        state: Trees = {"gate": {}}
        for group, members in self._groups(params).items():
            state["gate"][group] = like.new_ones(())
            state.update({f"{group}.{name}": tree for name, tree in self.optimizer.init(members).items()})
        return state

    def update(self, params: Tree, grads: Tree, state: Trees, lr: Tensor) -> None:
        """Both groups step; the one whose gate is closed is put back. No branch looks at a gate's value."""
        for group, members in self._groups(params).items():
            if not members:
                continue
            prefix = f"{group}."
            inner = {name[len(prefix) :]: tree for name, tree in state.items() if name.startswith(prefix)}
            moving = [members, *inner.values()]
            before = [clone(tree) for tree in moving]
            wanted = {name: grads[name] for name in members}
            self.optimizer.update(members, clip_by_norm(wanted, self.clip) if self.clip else wanted, inner, lr)
            opened = state["gate"][group] > 0
            for now, old in zip(moving, before, strict=True):
                for name, tensor in now.items():
                    tensor.copy_(torch.where(opened, tensor, old[name]))


@dataclass(frozen=True)
class TakingTurns(LocalTraining):
    """Local training whose step s moves the groups that have the turn `order(S)[s]`; made by `taking_turns`."""

    order: Callable[[int], Turns] = field(kw_only=True)
    turns: Mapping[tuple[str, str], int] = field(kw_only=True)  # (tree, group) -> its turn

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """The parts' draws, and whose turn it is."""
        return {**super().noise(rng, steps, batch), "turns.now": self.order(steps)}

    def prepare(self, job: Job, carry: Carry, batch: Batch) -> Batch:
        """Set the gates, then as usual."""
        now = batch.noise["turns.now"]
        for tree, state in carry["optimizer"].items():
            for group, gate in state["gate"].items():
                gate.copy_(now == self.turns.get((tree, group), -1))
        return super().prepare(job, carry, batch)


def taking_turns(
    task: LocalTraining,
    order: Callable[[int], Turns],
    turns: Mapping[tuple[str, str], int],
    apart: frozenset[str] = frozenset(),
) -> TakingTurns:
    """`task`, its parameters moving by turns; groups without one never move."""
    gated = replace(task, optimizer=Gated(task.optimizer, apart, task.clip), clip=0.0)
    return TakingTurns(**{f.name: getattr(gated, f.name) for f in fields(task)}, order=order, turns=turns)
