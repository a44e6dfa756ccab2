"""What the clients' batches will be, looked at before the start: nobody is asked for a step that cannot be taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accord.core.algorithm import Algorithm
from accord.core.plan import Plan
from accord.core.task import LocalTraining
from accord.core.types import Facts
from accord.errors import ConfigError


@dataclass(frozen=True)
class Shortage:
    """How many of the clients that train come to no step, or to a batch of a single sample."""

    clients: int
    idle: int
    alone: int

    @classmethod
    def of(cls, plan: Plan, facts: Facts) -> Shortage:
        """Counted once for every number of samples, however many clients have as many."""
        sizes, counts = np.unique(facts.sizes[facts.members], return_counts=True)
        lengths = [plan.lengths(int(size)) for size in sizes]
        idle = sum(int(n) for n, own in zip(counts, lengths, strict=True) if not own)
        alone = sum(int(n) for n, own in zip(counts, lengths, strict=True) if 1 in own)
        return cls(int(counts.sum()), idle, alone)


def check_steps(algorithm: Algorithm, facts: Facts, tolerate: float, trains_on_one: Callable[[], bool]) -> list[str]:
    """Refuse training in which nobody takes a step, or more than may fail would fail; remarks on the rest.

    `trains_on_one` says whether the network can be trained on a single sample.
    """
    remarks: list[str] = []
    for task in algorithm.tasks.values():
        if isinstance(task, LocalTraining) and (task.plan.epochs or task.plan.steps):
            short = Shortage.of(task.plan, facts)
            remarks += _idle(short, task.plan, int(facts.sizes.max()))
            if short.alone and task.model.couples_batch and not trains_on_one():
                remarks += _alone(short, task.plan, tolerate)
    return list(dict.fromkeys(remarks))


def _idle(short: Shortage, plan: Plan, largest: int) -> list[str]:
    why = f"local.last_batch = drop leaves out every batch of fewer than local.batch_size = {plan.batch_size} samples"
    if short.idle == short.clients:
        raise ConfigError(
            f"{why}, and no client has as many (the largest has {largest}), so nobody would train: lower "
            "local.batch_size, or set local.last_batch to pad or fill"
        )
    return [f"{short.idle} of {short.clients} clients take no step, as {why}"] if short.idle else []


def _alone(short: Shortage, plan: Plan, tolerate: float) -> list[str]:
    what = f"{short.alone} of {short.clients} clients come to a batch of one sample, on which batch norm cannot train"
    if short.alone > tolerate * short.clients:
        mend = "set local.last_batch to fill, or " if plan.last_batch == "pad" and plan.batch_size > 1 else ""
        raise ConfigError(
            f"{what}: {mend}see that every client has two samples or more (fewer clients, another partition) and "
            "local.batch_size is not 1, or use a network with group norm instead"
        )
    return [f"{what} (clients.tolerate = {tolerate:g})"]
