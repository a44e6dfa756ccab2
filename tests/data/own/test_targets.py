"""What labels are taken for, and what becomes of them: by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from accord.data.own.targets import output_names, strata, targets
from accord.errors import DataError

T = torch.tensor


@pytest.mark.parametrize(
    ("y", "task"),
    [
        ([0, 1, 2], "classification"),
        ([[2], [0], [1]], "classification"),  # a column is one label per sample
        ([0.5, 1.0, 2.0], "regression"),
        ([[0.5, 1.0], [2.0, 3.0], [0.0, 1.0]], "regression"),
        ([[0, 1], [1, 1], [0, 0]], "multilabel"),
        ([[True, False], [True, True], [False, False]], "multilabel"),
        ([[0, 2], [1, 1], [-100, 0]], "tokens"),
    ],
)
def test_labels_are_taken_for_what_they_look_like(y: Any, task: str) -> None:
    found = targets(y, 3, "auto")
    assert found.task == task
    assert found.y.tolist() == np.array(y).squeeze().tolist()
    assert found.y.is_floating_point() == (task == "regression")


@pytest.mark.parametrize(
    ("y", "said"),
    [
        ([[0, 1], [1, 0], [1, 0]], "holds only 0 and 1"),  # one-hot classes
        ([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]], "holds only 0 and 1"),
        ([0.0, 1.0, 2.0], "holds 3 different whole numbers, stored as real ones"),
    ],
)
def test_labels_that_could_be_several_things_are_asked_about(y: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        targets(y, 3, "auto")


def test_what_is_said_is_done() -> None:
    whole = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert targets(whole, 2, "multilabel").y.tolist() == [[0, 1], [1, 0]]
    assert targets(whole, 2, "multilabel").y.dtype == torch.int64
    assert targets(whole, 2, "regression").y.dtype == torch.get_default_dtype()
    assert targets([[1], [2]], 2, "regression").y.shape == (2,)
    assert targets([[1], [2]], 2, "tokens").y.shape == (2, 1), "sequences may be of length one"


@pytest.mark.parametrize(
    ("y", "count", "task", "said"),
    [
        ([1.5, 2.0], 3, "regression", "there are 3 samples but y has 2 labels"),
        (["a", "b"], 2, "regression", "must hold numbers for regression"),
        ([[0.5, 1.0]], 1, "multilabel", "whole numbers for multilabel, and some have fractions"),
        ([[1.0, np.nan]], 1, "tokens", "whole numbers for tokens, and some have fractions"),
    ],
)
def test_what_does_not_fit_is_refused(y: Any, count: int, task: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        targets(y, count, task)


def test_names_of_what_a_network_gives_a_number_for() -> None:
    assert output_names(None, "regression", {"y": T([0.5, 1.5])}) == ("y",)
    assert output_names(None, "regression", {"y": T([[0.5, 1.5]])}) == ("0", "1")
    assert output_names(["a", "b"], "multilabel", {"y": T([[0, 1]])}) == ("a", "b")
    assert output_names(2, "multilabel", {"y": T([[0, 1]])}) == ("0", "1")
    assert len(output_names(None, "tokens", {"y": T([[0, 4, -100]])})) == 5, "0 to 4; -100 is none"
    assert output_names(None, "tokens", {"y": T([[0, 0, -100]])}) == ("0",), "0 is a class"
    for names in (["a"], ["a", "a"], 3):
        with pytest.raises(DataError, match="y has 2 columns for multilabel"):
            output_names(names, "multilabel", {"y": T([[0, 1]])})


def test_labels_that_do_not_fit_are_refused_with_the_part_they_are_of() -> None:
    good, bad = T([[0, 1]]), T([[0, 2]])
    with pytest.raises(DataError, match="train"):
        output_names(None, "multilabel", {"y": bad, "test y": good})
    with pytest.raises(DataError, match="test"):
        output_names(None, "multilabel", {"y": good, "test y": bad})


def test_test_samples_are_spread_over_classes_where_there_are_any() -> None:
    assert strata(T([2, 0, 2]), "classification").tolist() == [2, 0, 2]
    assert len(set(strata(T([0.5, 1.5]), "regression").tolist())) == 1
