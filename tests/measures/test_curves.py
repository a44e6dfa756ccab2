"""What is right, and what is read off curves."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.errors import ConfigError, DataError
from accord.measures.accuracy import rounds_to, top_mean
from accord.problems import PROBLEMS

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 5.0], [0.0, 0.0, 1.0]])
LABELS = torch.tensor([0, 1, 0, 2])
NAN = float("nan")


def test_right_and_wrong():
    assert PROBLEMS["classification"].score(LOGITS, LABELS).tolist() == [True, True, False, True]


def test_nothing_is_right_about_nan():
    logits = torch.tensor([[NAN, 0.0], [0.0, NAN], [NAN, NAN], [1.0, 0.0]])
    assert PROBLEMS["classification"].score(logits, torch.tensor([0, 1, 0, 0])).tolist() == [False, False, False, True]


def test_of_equal_logits_the_first_wins():
    assert PROBLEMS["classification"].score(torch.zeros(2, 4), torch.tensor([0, 3])).tolist() == [True, False]


def test_top_mean():
    history = {1: 0.125, 2: 0.75, 3: 0.5, 4: 0.25, 5: 1.0, 6: 0.625, 7: NAN}
    assert top_mean(history) == (1.0 + 0.75 + 0.625 + 0.5 + 0.25) / 5
    assert top_mean(history, 1) == 1.0
    assert top_mean({3: 0.5, 4: 0.25}) == 0.375
    for empty in ({}, {1: NAN}):
        with pytest.raises(DataError, match=r"no round"):
            top_mean(empty)
    with pytest.raises(ConfigError, match=r"at least 1, got 0"):
        top_mean(history, 0)


def test_rounds_to():
    history = {30: 0.7, 10: 0.5, 20: 0.8, 40: NAN}  # not in order
    assert rounds_to(history, [0.6, 0.5, 0.8, 0.81]) == {0.6: 20, 0.5: 10, 0.8: 20, 0.81: None}
    assert rounds_to({}, [0.5]) == {0.5: None}
    assert rounds_to(history, []) == {}


def test_rounding_does_not_hide_a_target():
    mean = sum([0.8] * 10) / 10
    assert mean < 0.8
    assert rounds_to({5: mean}, [0.8]) == {0.8: 5}
    assert rounds_to({5: 0.7999}, [0.8]) == {0.8: None}


@settings(deadline=None, max_examples=30)
@given(st.dictionaries(st.integers(0, 50), st.floats(0, 1), min_size=1), st.integers(1, 8))
def test_curves(history, count):
    assert min(history.values()) - 1e-12 <= top_mean(history, count) <= max(history.values()) + 1e-12
    peak = max(history.values())
    reached = rounds_to(history, [peak])[peak]
    assert reached is not None
    assert history[reached] >= peak - 1e-9
    assert all(value < peak - 1e-9 for number, value in history.items() if number < reached)
