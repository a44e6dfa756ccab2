"""A client judges a model on its own test samples: three sums, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from accord.core.judgement import Judgement
from accord.core.model import Model, Out
from accord.core.types import ClientData, Job
from accord.problems import PROBLEMS
from support.federation import tiny_model

X = torch.tensor([[0.0, math.log(3.0)], [math.log(3.0), 0.0], [0.0, math.log(3.0)]])  # the logits themselves
Y = torch.tensor([1, 1, 1])  # right with 3/4, wrong with 1/4, right with 3/4


def job(x: Tensor, y: Tensor) -> Job:
    info: dict[str, Any] = {"lr": torch.tensor(0.1)}
    return Job({"model": {"w": torch.ones(1)}}, {}, {}, info, ClientData(x[:0], y[:0], x, y, 2))


def judged(task: Judgement, x: Tensor = X, y: Tensor = Y) -> dict[str, float]:
    result = task.finish(job(x, y), task.begin(job(x, y)))
    assert (result.memory, result.metrics) == ({}, {})
    assert result.reply.keys() == {"score"}
    assert all(value.dtype == torch.float64 for value in result.reply["score"].values())
    return {name: float(value) for name, value in result.reply["score"].items()}


@pytest.mark.parametrize("size", [1, 2, 3, 512])
@pytest.mark.parametrize("together", [False, True])
def test_sums_over_batches_of_any_size(size: int, together: bool) -> None:
    shown: list[int] = []

    def predictor(shared: Any) -> Any:
        assert shared["model"]["w"].tolist() == [1.0]

        def predict(x: Tensor) -> Out:
            shown.append(len(x))
            return Out(x, x)

        return predict

    score = judged(Judgement(tiny_model(), predictor, together, size))
    assert score.pop("loss") == pytest.approx(2 * math.log(4 / 3) + math.log(4))
    assert score == {"correct": 2.0, "examples": 3.0}
    assert shown == {1: [1, 1, 1], 2: [2, 1], 3: [3], 512: [3]}[size]


def test_samples_that_depend_on_one_another_are_mixed_and_always_alike() -> None:
    orders: list[list[float]] = []

    def predictor(_: Any) -> Any:
        def predict(x: Tensor) -> Out:
            orders.append(x[:, 0].tolist())
            return Out(x, x)

        return predict

    x, y = torch.arange(100.0).view(50, 2), torch.zeros(50, dtype=torch.long)
    for together in (False, True, True):
        judged(Judgement(tiny_model(), predictor, together), x, y)
    kept, mixed, again = orders
    assert kept == x[:, 0].tolist()
    assert mixed == again != kept
    assert sorted(mixed) == kept
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    assert mixed == x[order, 0].tolist(), "the same order in every run, everywhere"


def test_labels_are_mixed_with_their_samples() -> None:
    """Every second sample is of class 1, and all are told right: of others' labels half would be."""
    y = torch.arange(50) % 2
    x = torch.nn.functional.one_hot(y, 2).float()
    score = judged(Judgement(tiny_model(), lambda _: lambda x: Out(x, x), True, 8), x, y)
    assert score["correct"] == score["examples"] == 50.0
    assert score["loss"] == pytest.approx(50 * math.log(1 + math.exp(-1)))


def test_weights_of_classes_are_for_training_alone() -> None:
    weighted = Model(tiny_model().network, problem=PROBLEMS["classification"].weighted((1.0, 7.0), 2))
    score = judged(Judgement(weighted, lambda _: lambda x: Out(x, x)))
    assert score["loss"] == pytest.approx(2 * math.log(4 / 3) + math.log(4))


def test_nothing_to_judge_with_and_nothing_to_judge() -> None:
    assert judged(Judgement(tiny_model(), lambda _: None)) == {"correct": 0.0, "loss": 0.0, "examples": 3.0}

    def never(_: Any) -> Any:
        def predict(x: Tensor) -> Out:
            raise AssertionError("it was asked about no samples")

        return predict

    assert judged(Judgement(tiny_model(), never), X[:0], Y[:0]) == {"correct": 0.0, "loss": 0.0, "examples": 0.0}
    task = Judgement(tiny_model(), never)
    assert (task.plan.epochs, task.plan.steps, task.batch_size, task.together) == (0, 0, 512, False)
    assert task.first_memory(job(X, Y)) == {}
