"""What a measure may look at: the scene, which stays, and the moment, which is one round's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from accord.core.algorithm import Algorithm, Predictor
from accord.core.task import Task
from accord.core.tensors import Trees
from accord.core.types import Carry, Job, Replies, State
from accord.data.federated import FederatedData
from accord.filters import Budget
from accord.measures.predictions import ClientScores, Predictions
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
    budget: Budget | None = None  # of differential privacy
    labels: Mapping[str, list[Any]] | None = None  # what clients told of their labels, where their data is not here

    @property
    def problem(self) -> Problem:
        """What is learned."""
        return PROBLEMS[self.data.problem]

    def admits(self, measure: Any) -> bool:
        """Whether a measure that is on can be taken here; ConfigError where it was asked for and cannot."""
        return True

    def predictions(self, predictor: Predictor, keep: frozenset[str] = frozenset()) -> Predictions:
        """What a model says of the samples it is judged on."""
        together = self.algorithm.judges_together
        return Predictions(predictor, self.data, self.batch_size, self.device, keep, together=together)

    def judged(self, state: State, keep: frozenset[str] = frozenset()) -> Predictions | None:
        """The global model of a state; None where the method has none."""
        predictor = self.algorithm.predictor(state)
        return self.predictions(predictor, keep) if predictor is not None else None


@dataclass(frozen=True)
class Moment:
    """One round, after the server's update."""

    round: int  # counted from 0
    old: State
    new: State
    replies: Replies
    memory_of: Callable[[int], Trees]  # what a client keeps; it need not have come with its reply
    predictions: Predictions | None  # of the global model; None: there is none, or the round is not evaluated


@dataclass(frozen=True)
class Final:
    """The end of a run: the last state, and what is read off it once."""

    scene: Scene
    state: State
    ask: Ask
    predictions: Predictions | None  # of the global model; None: there is none

    @property
    def clients(self) -> ClientScores | None:
        """The global model on the clients' own test data, unless that is switched off or nobody has any."""
        if self.predictions is None or not self.scene.settings.get("clients", True):
            return None
        return self.predictions.clients("test")

    @cached_property
    def trained(self) -> dict[int, Mapping[str, Tensor]]:
        """What every client measured before and after one more training from this state; nothing else is kept."""
        replies = self.ask("train", self.scene.members, self.scene.algorithm.message(self.state))
        return {client: result.metrics for client, result in zip(replies.ids, replies.results, strict=True)}
