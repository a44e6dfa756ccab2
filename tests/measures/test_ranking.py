"""What is ranked against what: the truth and the scores that scikit-learn is given, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from accord.measures.ranking import one_against_rest

pytest.importorskip("sklearn")


def given(logits: list[list[float]], labels: Any) -> tuple[Any, Any]:
    """The truth and the scores of one call."""
    seen: list[tuple[Any, Any]] = []

    def ranked(truth: Any, scores: Any) -> float:
        seen.append((truth.tolist(), scores.tolist()))
        return 0.25

    assert one_against_rest(ranked, torch.tensor(logits), torch.tensor(labels)) == 0.25
    (one,) = seen
    return one


def test_of_two_classes_the_second_is_ranked_by_the_difference_of_its_logits() -> None:
    truth, scores = given([[1.0, 5.0], [9.0, 6.0], [0.0, 2.0]], [1, 0, 1])
    assert truth == [True, False, True]
    assert scores == [4.0, -3.0, 2.0]


def test_of_more_classes_each_is_ranked_by_its_odds_against_the_others_together() -> None:
    """Odds 1 : 2 + 5, 2 : 1 + 5, 5 : 1 + 2, and so on; the third class is not there and not ranked."""
    rows = np.array([[1.0, 2.0, 5.0], [4.0, 1.0, 1.0], [1.0, 1.0, 2.0]])
    truth, scores = given(np.log(rows).tolist(), [0, 1, 0])
    assert truth == [[True, False], [False, True], [True, False]]
    expected = [[1 / 7, 2 / 6], [4 / 2, 1 / 5], [1 / 3, 1 / 3]]
    np.testing.assert_allclose(np.exp(scores), expected, rtol=1e-6)


def test_of_several_labels_each_is_a_column_that_shows_both_kinds() -> None:
    """Everybody has the second label, nobody the third: neither can be ranked."""
    logits = [[0.5, 7.0, 1.0, -1.0], [1.5, 8.0, 2.0, -2.0], [2.5, 9.0, 3.0, -3.0]]
    truth, scores = given(logits, [[0, 1, 0, 1], [1, 1, 0, 0], [0, 1, 0, 1]])
    assert truth == [[False, True], [True, False], [False, True]]
    assert scores == [[0.5, -1.0], [1.5, -2.0], [2.5, -3.0]]


def test_one_column_is_ranked_as_one() -> None:
    truth, scores = given([[0.5, 7.0], [1.5, 8.0]], [[0, 1], [1, 1]])
    assert truth == [False, True]
    assert scores == [0.5, 1.5]


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], [1, 1]),
        ([[1.0, 2.0], [3.0, 4.0]], [0, 0]),
        ([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]], [2, 2]),
        ([[1.0, 2.0], [3.0, 4.0]], [[1, 0], [1, 0]]),
        ([[1.0, math.inf], [3.0, 4.0]], [0, 1]),
        ([[1.0, 2.0], [math.nan, 4.0]], [0, 1]),
    ],
)
def test_what_cannot_be_ranked_is_no_number(logits: list[list[float]], labels: Any) -> None:
    assert math.isnan(one_against_rest(lambda truth, scores: 1.0, torch.tensor(logits), torch.tensor(labels)))
