"""All lanes as one: every buffer is a slice of one tensor, [K, ...], and one compiled gradient serves all clients.

What a method does before and after the gradient still runs lane by lane, each on a stream of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from accord.core.task import LocalTraining
from accord.core.tensors import Trees
from accord.core.types import Batch, ClientData, Job
from accord.executors.gpu.buffers import stacked
from accord.executors.gpu.compiler import StackedStep
from accord.executors.gpu.graphs import Recorder
from accord.executors.gpu.lane import Lane


class Stack:
    """Lanes laid together: `given` and `carry` hold all of theirs."""

    def __init__(self, compiled: StackedStep, lanes: Sequence[Lane], most: int, recorder: Recorder) -> None:
        self.compiled, self.recorder = compiled, recorder
        self._given, self._carry = [lane.given for lane in lanes], [lane.carry for lane in lanes]
        self.given, self.carry = stacked(self._given, most), stacked(self._carry, most)
        self._moved = self._moves()

    def holds(self, lanes: Sequence[Lane]) -> bool:
        """Whether these lanes are laid together, none of their buffers has moved since."""
        return len(lanes) == len(self._given) and self._moves() == self._moved

    def step(self, shared: Trees, data: ClientData, batch: Batch) -> None:
        """One step of all lanes; `batch` is stacked too."""
        task = self.compiled.task
        batches = split(batch)
        if task.has_own("prepare", "batch", "before"):
            self.recorder.side_by_side(
                [partial(self._prepare, task, shared, data, batches, lane) for lane in range(len(batches))]
            )
            batch = _together(batches)
        grads, sums = self.compiled(shared, self.given, self.carry, batch)
        if task.moves_in_stack:
            return
        self.recorder.side_by_side(
            [partial(self._move, task, shared, data, batches, grads, sums, lane) for lane in range(len(batches))]
        )

    def _prepare(self, task: LocalTraining, shared: Trees, data: ClientData, batches: list[Batch], lane: int) -> None:
        carry = self._carry[lane].fresh()
        batches[lane] = task.prepare(self._job(shared, data, lane), carry, batches[lane])
        self._carry[lane].settle(carry)

    def _move(
        self,
        task: LocalTraining,
        shared: Trees,
        data: ClientData,
        batches: list[Batch],
        grads: Trees,
        sums: list[Tensor],
        lane: int,
    ) -> None:
        carry = self._carry[lane].fresh()
        slices = {tree: {name: grad[lane] for name, grad in leaves.items()} for tree, leaves in grads.items()}
        task.move(self._job(shared, data, lane), carry, batches[lane], slices, [values[lane] for values in sums])
        self._carry[lane].settle(carry)

    def _job(self, shared: Trees, data: ClientData, lane: int) -> Job:
        return Job(shared, data=data, **self._given[lane].value)

    def _moves(self) -> int:
        return sum(fixed.moved for fixed in (*self._given, *self._carry))


def split(batch: Batch) -> list[Batch]:
    """One batch for each lane."""
    return [
        Batch(x, y, weight, index, {name: values[lane] for name, values in batch.noise.items()})
        for lane, (x, y, weight, index) in enumerate(zip(*batch[:4], strict=True))
    ]


def _together(batches: Sequence[Batch]) -> Batch:
    def stack(name: str) -> Tensor:
        return torch.stack([getattr(batch, name) for batch in batches])

    noise = {name: torch.stack([batch.noise[name] for batch in batches]) for name in batches[0].noise}
    return Batch(stack("x"), stack("y"), stack("weight"), stack("index"), noise)
