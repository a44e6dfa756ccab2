"""Accuracy, loss and what is read off curves."""

from __future__ import annotations

from math import exp, log

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.errors import ConfigError, DataError
from accord.metrics import mean_cross_entropy, num_correct, rounds_to, top1, top_mean

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 5.0], [0.0, 0.0, 1.0]])
LABELS = torch.tensor([0, 1, 0, 2])
NAN = float("nan")


def test_counts_and_shares():
    assert num_correct(LOGITS, LABELS).item() == 3
    assert top1(LOGITS, LABELS) == 0.75
    weight = torch.tensor([1.0, 1.0, 1.0, 0.0])
    assert num_correct(LOGITS, LABELS, weight).item() == 2.0
    assert top1(LOGITS, LABELS, weight) == pytest.approx(2 / 3)


def test_nothing_is_right_about_nan():
    logits = torch.tensor([[NAN, 0.0], [0.0, NAN], [NAN, NAN], [1.0, 0.0]])
    assert num_correct(logits, torch.tensor([0, 1, 0, 0])).item() == 1


def test_of_equal_logits_the_first_wins():
    assert top1(torch.zeros(2, 4), torch.tensor([0, 3])) == 0.5


def test_cross_entropy_by_hand():
    logits = torch.tensor([[0.0, log(3.0)], [0.0, 0.0]])  # probabilities 1/4, 3/4 and 1/2, 1/2
    labels = torch.tensor([0, 1])
    assert mean_cross_entropy(logits, labels) == pytest.approx((log(4) + log(2)) / 2, rel=1e-6)
    assert mean_cross_entropy(logits, labels, torch.tensor([3.0, 1.0])) == pytest.approx((3 * log(4) + log(2)) / 4)


def test_cross_entropy_of_confident_mistakes_and_padding():
    assert mean_cross_entropy(torch.tensor([[1000.0, 0.0]]), torch.tensor([1])) == 1000.0
    assert mean_cross_entropy(torch.tensor([[1.0, 0.0]]), torch.tensor([0])) == pytest.approx(log(1 + exp(-1)))
    padded = torch.tensor([[0.0, 0.0], [float("inf"), 0.0]])
    assert mean_cross_entropy(padded, torch.tensor([0, 0]), torch.tensor([1.0, 0.0])) == pytest.approx(log(2))


@pytest.mark.parametrize("metric", [top1, mean_cross_entropy])
def test_nothing_to_judge(metric):
    with pytest.raises(DataError, match=r"no samples"):
        metric(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(DataError, match=r"no samples"):
        metric(LOGITS, LABELS, torch.zeros(4))
    assert num_correct(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)).item() == 0


@pytest.mark.parametrize("metric", [top1, mean_cross_entropy, num_correct])
def test_shapes_that_do_not_fit(metric):
    for logits, labels in (
        (LOGITS, LABELS[:3]),
        (LOGITS[0], LABELS),
        (torch.zeros(4, 0), LABELS),
        (LOGITS, LOGITS),
    ):
        with pytest.raises(DataError, match=r"\[samples, classes\]"):
            metric(logits, labels)
    with pytest.raises(DataError, match=r"weights must be"):
        metric(LOGITS, LABELS, torch.ones(3))


@pytest.mark.parametrize("metric", [top1, mean_cross_entropy])
@pytest.mark.parametrize("label", [-1, 3])
def test_labels_outside_the_classes(metric, label):
    with pytest.raises(DataError, match=r"0\.\.2, got"):
        metric(LOGITS, torch.tensor([0, 1, 0, label]))


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
