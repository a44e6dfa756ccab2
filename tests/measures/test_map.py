"""Mean average precision."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from accord.errors import DataError
from accord.measures.map import mean_average_precision
from support.retrieval import naive_map


def at(*degrees: float) -> Tensor:
    """Unit vectors in the plane: the closer the angles, the higher the score."""
    return torch.tensor([[math.cos(math.radians(d)), math.sin(math.radians(d))] for d in degrees])


def test_by_hand():
    # Angles 0 (A), 10 (B), 25 (A), 60 (B). Each one ranks the three others:
    # 0: B A B -> 1/2. 10: A(0) A(25) B -> 1/3. 25: B(10) A(0) B(60) -> 1/2. 60: A(25) B(10) A(0) -> 1/2.
    found = mean_average_precision(at(0, 10, 25, 60), torch.tensor([0, 1, 0, 1]))
    assert found == pytest.approx((1 / 2 + 1 / 3 + 1 / 2 + 1 / 2) / 4)
    # Class 7 at 0, 10, 30 and another one at 21. 0: hit(10) miss hit(30). 10: hit(0) miss hit(30). 30: miss hit hit.
    found = mean_average_precision(at(0, 10, 21, 30), torch.tensor([7, 7, 1, 7]))
    assert found == pytest.approx(((1 + 2 / 3) / 2 + (1 + 2 / 3) / 2 + (1 / 2 + 2 / 3) / 2) / 3)


def test_lengths_do_not_matter():
    features = at(0, 10, 25, 60) * torch.tensor([[100.0], [1.0], [1e-3], [7.0]])
    assert mean_average_precision(features, torch.tensor([0, 1, 0, 1])) == pytest.approx(11 / 24)


def test_samples_without_a_match_are_left_out():
    # 0 and 20 degrees find each other behind the one at 11, which finds nobody of its class
    assert mean_average_precision(at(0, 20, 11), torch.tensor([7, 7, 9])) == pytest.approx(1 / 2)


def test_equal_scores_keep_the_order():
    same = torch.ones(3, 2)
    # the first finds the second before the third, the third finds the first before the second
    assert mean_average_precision(same, torch.tensor([1, 1, 0])) == pytest.approx((1 + 1) / 2)
    assert mean_average_precision(same, torch.tensor([0, 1, 1])) == pytest.approx((1 / 2 + 1 / 2) / 2)


def test_half_precision_features():
    # Less than a degree apart: in half precision the cosines 0.99988 and 0.99999 are both 1.
    close = torch.tensor([[8.0, 0.0], [8.0, 0.125], [8.0, 0.03125]]).half()
    assert mean_average_precision(close, torch.tensor([0, 1, 0])) == 1.0


def test_double_precision_features():
    # Millionths of a degree: in single precision the cosines are all 1, and the second sample would come first.
    close = torch.tensor([[1.0, 0.0], [1.0, 3e-6], [1.0, 1e-6]], dtype=torch.float64)
    assert mean_average_precision(close, torch.tensor([0, 1, 0])) == 1.0


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.integers(2, 9), st.sampled_from([1, 7, 30, 10_000]))
def test_against_a_naive_search_in_blocks_of_any_size(seed, items, max_scores):
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(items, 3, generator=g, dtype=torch.float64)
    labels = torch.randint(3, (items,), generator=g)
    expected = naive_map(features, labels)
    if expected is None:
        with pytest.raises(DataError, match=r"no sample has a match"):
            mean_average_precision(features, labels, max_scores)
        return
    assert mean_average_precision(features, labels, max_scores) == pytest.approx(expected)


X, Y = torch.ones(3, 2), torch.tensor([0, 0, 1])


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (torch.zeros(0, 2), Y[:0], r"features must be \[samples, features\]"),
        (torch.ones(3, 0), Y, r"features must be"),
        (X[0], Y, r"features must be"),
        (X, Y[:2], r"got \(3, 2\) and \(2,\)"),
        (X * float("nan"), Y, r"not finite"),
        (X, torch.tensor([0, 1, 2]), r"no sample has a match"),
    ],
)
def test_what_cannot_be_searched(features, labels, message):
    with pytest.raises(DataError, match=message):
        mean_average_precision(features, labels)
