"""One client of a block, and the lane it is trained in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from accord.client import Work
from accord.core.task import LocalTraining, Task
from accord.core.tensors import Trees
from accord.core.types import Batch, ClientData, Job
from accord.executors.gpu.buffers import Buffers
from accord.executors.gpu.graphs import CaptureError

Draws = dict[str, np.ndarray[Any, np.dtype[Any]]]
Rows = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Client:
    """One client's share of a request, with everything drawn."""

    work: Work
    job: Job
    examples: int
    batches: list[Rows]
    draws: Draws

    @property
    def id(self) -> int:
        """Its number in the federation."""
        return self.work.client


class Lane:
    """The fixed buffers of one client at a time."""

    def __init__(self, task: Task, device: torch.device) -> None:
        self.task = task
        self.given = Buffers(device)
        self.carry = Buffers(device)

    def seat(self, job: Job, most: int) -> None:
        """Take in a client: what its steps read."""
        self.given.load({"private": job.private, "memory": job.memory, "info": job.info}, most)

    def begin(self, shared: Trees, data: ClientData) -> None:
        """What the steps work on, made from the buffers alone."""
        self.carry.load(self.task.begin(self._job(shared, data)))

    def step(self, shared: Trees, data: ClientData, batch: Batch) -> None:
        """One step on the buffers."""
        self.carry.settle(self.task.step(self._job(shared, data), self.carry.fresh(), batch))

    def close(self, shared: Trees, data: ClientData, examples: int) -> None:
        """What follows the last step, on the buffers."""
        cast(LocalTraining, self.task).close(self._job(shared, data), self.carry.like(examples))

    def _job(self, shared: Trees, data: ClientData) -> Job:
        given = self.given.value
        return Job(shared, given["private"], given["memory"], given["info"], data)

    def twin(self) -> Lane:
        """A lane with the same values."""
        lane = Lane(self.task, self.given.device)
        lane.given.load(self.given.value)
        lane.carry.load(self.carry.value)
        return lane

    @property
    def moved(self) -> int:
        """How often a buffer moved."""
        return self.given.moved + self.carry.moved


class _Nothing:
    """A client's data as recorded work sees it: not at all, since another client's would be read next time."""

    has_test = False

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def __getattr__(self, name: str) -> Any:
        raise CaptureError(f"it reads job.data.{name} in a step; read that in begin and keep what is needed")


def nothing(num_classes: int) -> ClientData:
    """Looks like `ClientData`; only the number of classes is the same for all clients."""
    empty: Any = _Nothing(num_classes)
    none: ClientData = empty
    return none
