"""A task from outside of the package: its labels, its answers, and what a site is told of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

import accord
import accord.errors
from accord.config import catalog
from accord.deploy.answers import Answers
from accord.problems import PROBLEMS
from accord.problems.classification import Classification
from accord.problems.problem import entry
from accord.problems.regression import Regression


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    len(PROBLEMS)
    monkeypatch.setattr(PROBLEMS, "_entries", dict(PROBLEMS._entries))
    monkeypatch.setattr(PROBLEMS, "_facts", dict(PROBLEMS._facts))

    @entry
    @dataclass(frozen=True)
    class Robust(Regression):
        """Numbers, judged by the mean absolute error."""

        name = "robust"
        headline = "abs_error"
        title = "mean error"
        reading = staticmethod(float)

        def score(self, outputs: Tensor, y: Tensor) -> Tensor:
            return (outputs - y.reshape(outputs.shape)).abs().mean(1)

    @entry
    @dataclass(frozen=True)
    class Grades(Classification):
        """Classes under another name."""

        name = "grades"


def test_real_labels_stay_real(own: None) -> None:
    data = accord.from_arrays(
        np.zeros((6, 2), np.float32), [0.5, 1.5, -2, 0, 7, 8.25], clients=list("aabbcc"), task="robust"
    )
    found = torch.cat([data.train.y, data.test.y]).flatten().sort().values
    assert found.tolist() == [-2, 0, 0.5, 1.5, 7, 8.25]
    assert data.problem == "robust"


def test_answers_are_numbers(own: None) -> None:
    answers = Answers("robust", ["y"], 1)
    assert answers.words(torch.tensor([[1.5], [-2.0]])) == [1.5, -2.0]
    with pytest.raises(accord.errors.ConfigError, match="no probabilities"):
        answers.probabilities(torch.zeros(1, 1))


def test_classes_under_another_name_keep_their_names(own: None) -> None:
    data = accord.from_arrays(
        np.zeros((6, 2), np.float32), [0, 1, 0, 1, 1, 0], clients=list("aabbcc"), task="grades", classes=["no", "yes"]
    )
    assert data.classes == ("no", "yes")
    with pytest.raises(accord.errors.DataError):
        accord.from_arrays(np.zeros((2, 2), np.float32), [0.5, 1.5], clients=["a", "b"], task="grades")


def test_a_method_of_a_notebook_is_explained_by_its_own_words() -> None:
    def mine() -> None:
        """FedAvg, with a difference."""

    assert catalog.card("algorithm", mine) == (__doc__ or "").strip()  # of a module: its docstring
    mine.__module__ = "__main__"
    assert catalog.card("algorithm", mine) == "FedAvg, with a difference."
