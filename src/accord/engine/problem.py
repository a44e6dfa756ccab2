"""What a run learns: the configuration's `task` and the data's labels together, and what is not defined for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from accord.core.algorithm import Algorithm
from accord.core.task import LocalTraining, Part
from accord.core.types import Facts
from accord.data.federated import Dataset, FederatedData, Pool
from accord.errors import ConfigError, DataError
from accord.problems import PROBLEMS, Problem

if TYPE_CHECKING:
    from accord.config import RunConfig


def as_asked(task: str, dataset: Dataset) -> Dataset:
    """The data set for the asked task. `auto` is what the data says; whole numbers may be asked for as real ones."""
    if task in ("auto", dataset.problem):
        return dataset
    if (task, dataset.problem) != ("regression", "classification"):
        raise ConfigError(_other(task, dataset.name, dataset.problem))
    train, test = (_real(pool) for pool in (dataset.train, dataset.test))
    return replace(dataset, train=train, test=test, classes=("y",), problem=task)


def check_asked(task: str, data: FederatedData) -> None:
    """Refuse data that is divided already and is for another task."""
    if task not in ("auto", data.problem):
        raise ConfigError(_other(task, data.name, data.problem))


def facts_of(config: RunConfig, data: FederatedData) -> Facts:
    """What is known of the data without its samples; with `balanced` weights, how rare which label is in all of it."""
    wanted, facts = config.local.class_weights, data.facts
    if wanted == "none":
        return facts
    problem = PROBLEMS[data.problem]
    if wanted != "balanced":
        return replace(facts, class_weights=problem.weighted(wanted, data.num_classes).weights)
    rows = torch.cat([torch.from_numpy(data.train[client]) for client in facts.members])
    return replace(facts, class_weights=problem.balanced(data.train_pool.y[rows], data.num_classes))


def problem_of(facts: Facts) -> Problem:
    """What is learned, its training loss weighted where that is asked for."""
    problem = PROBLEMS[facts.problem]
    return problem.weighted(facts.class_weights, facts.num_classes) if facts.class_weights else problem


def check_labels(data: FederatedData) -> None:
    """Labels that are the task's own, whoever made the data."""
    for part, pool in (("train", data.train_pool), ("test", data.test_pool)):
        if len(pool.x) != len(pool.y):
            raise DataError(f"the {part} data has {len(pool.x)} inputs and {len(pool.y)} labels; they must be as many")
        PROBLEMS[data.problem].check(pool.y, data.num_classes, part)


def check_defined(name: str, algorithm: Algorithm, facts: Facts) -> None:
    """Refuse a method one of whose parts is not defined for the task, or for inputs such as these."""
    trained = [task for task in algorithm.tasks.values() if isinstance(task, LocalTraining)]
    for part in dict.fromkeys(part for task in trained for part in task.parts):
        if not {"any", facts.problem} & set(part.problems):
            raise ConfigError(
                f"algorithm {name} is not defined for task {facts.problem}, as it is set: its part {part.name} needs "
                f"{part.needs}, and {facts.problem} has none. {_others(part)}"
            )
        if part.mixes and (facts.vocabulary or facts.fields is not None):
            kind = "token ids" if facts.vocabulary else "several inputs in one row"
            raise ConfigError(
                f"algorithm {name} is not defined for such inputs, as it is set: its part {part.name} computes with "
                f"them as real numbers, and these are {kind} ({facts.problem}). Choose a method that needs only a "
                "loss, such as fedavg, scaffold or ditto"
            )


def _others(part: Part) -> str:
    return (
        f"It is for {', '.join(part.problems)}; for all tasks there are the methods that need only a loss, such as "
        "fedavg, scaffold or ditto (a part of your own says so with problems = ('any',))"
    )


def _other(task: str, name: str, problem: str) -> str:
    return (
        f"task = '{task}', but the labels of the data {name!r} are for {problem}: set task to auto or {problem}, or "
        f"make the data for it, such as accord.from_arrays(x, y, task='{task}')"
    )


def _real(pool: Pool) -> Pool:
    y: Tensor = pool.y.to(torch.get_default_dtype())
    return replace(pool, y=y)
