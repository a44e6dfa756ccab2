"""What a measure may look at: the scene, which stays, and the moment, which is one round's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from accord.core.algorithm import Algorithm, Predictor
from accord.core.task import Task
from accord.core.tensors import Trees
from accord.core.types import Carry, Job, Replies, State
from accord.data.federated import FederatedData
from accord.measures.predictions import Predictions
from accord.problems import PROBLEMS, Problem

Ask = Callable[[str, Sequence[int], Trees], Replies]  # a last exchange: task, clients, message; no memory is kept
Look = Callable[[Job, Carry], None]
# Trains a client outside the rounds: client, task, message, round, and who looks on before the first step and after
# each epoch. Nothing is kept.
Visit = Callable[[int, Task, Trees, int, Look], None]


@dataclass(frozen=True)
class Scene:
    """What all measures of a run share."""

    algorithm: Algorithm
    data: FederatedData
    device: torch.device
    members: Sequence[int]  # clients that train
    rounds: int
    every: int = 1  # rounds between two evaluations
    batch_size: int = 512
    targets: Sequence[float] = ()  # accuracies whose first round is reported
    settings: Mapping[str, Any] = field(default_factory=dict)  # the measures' own, by key
    facts: Mapping[str, Any] = field(default_factory=dict)  # what the summary says of the run before any number
    visit: Visit | None = None  # None: the clients' data is not here

    @property
    def problem(self) -> Problem:
        """What is learned."""
        return PROBLEMS[self.data.problem]

    def predictions(self, predictor: Predictor, keep: frozenset[str] = frozenset()) -> Predictions:
        """What a model says of the samples it is judged on."""
        together = self.algorithm.judges_together
        return Predictions(predictor, self.data, self.batch_size, self.device, keep, together=together)


@dataclass(frozen=True)
class Moment:
    """One round, after the server's update."""

    round: int  # counted from 0
    old: State
    new: State
    replies: Replies
    memory_of: Callable[[int], Trees]  # what a client keeps; it need not have come with its reply
    predictions: Predictions | None  # of the global model; None: there is none, or the round is not evaluated
