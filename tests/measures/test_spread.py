"""Spread over clients."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.errors import DataError
from accord.measures.spread import in_short, spread, spread_record

NAN = float("nan")


def test_by_hand():
    s = spread([0.2, 0.4, 0.9], sizes=[10, 20, 70])
    assert (s.best, s.worst, s.clients, s.skipped) == (0.9, 0.2, 3, 0)
    assert s.mean == pytest.approx(0.5)
    assert s.std == pytest.approx(sqrt((0.09 + 0.01 + 0.16) / 3))  # population, not sample
    assert s.weighted_mean == pytest.approx(0.02 + 0.08 + 0.63)


def test_deciles_interpolate():
    # Eleven clients at 0, 1, ..., 10: the k-th decile is exactly k.
    assert spread(range(11)).deciles == pytest.approx(tuple(range(1, 10)))
    # Two clients at 0 and 1: linear in between.
    assert spread([1.0, 0.0]).deciles == pytest.approx([k / 10 for k in range(1, 10)])


def test_clients_without_test_data_are_skipped_and_counted():
    with_gaps = spread([NAN, 0.2, 0.4, NAN, 0.9], sizes=[0, 10, 20, 5, 70])
    without = spread([0.2, 0.4, 0.9], sizes=[10, 20, 70])
    assert with_gaps.skipped == 2
    assert (with_gaps.mean, with_gaps.std, with_gaps.weighted_mean) == (
        without.mean,
        without.std,
        without.weighted_mean,
    )
    assert with_gaps.deciles == without.deciles


def test_the_record_knows_which_end_is_the_better_one():
    higher, lower = (spread_record([0.25, 1.0], [1, 3], better) for better in ("higher", "lower"))
    assert (higher["best"], higher["worst"], lower["best"], lower["worst"]) == (1.0, 0.25, 0.25, 1.0)
    assert in_short(higher) == {"best": 1.0, "worst": 0.25, "mean": 0.625, "std": 0.375}
    assert isinstance(higher["deciles"], list)


def test_one_client_arrays_and_tensors():
    s = spread(np.array([0.5], dtype=np.float32))
    assert (s.best, s.worst, s.mean, s.std, s.deciles) == (0.5, 0.5, 0.5, 0.0, (0.5,) * 9)
    assert s.weighted_mean is None
    assert spread(torch.tensor([0.25, 0.75])).mean == 0.5


@pytest.mark.parametrize(
    ("values", "sizes", "message"),
    [
        ([], None, r"none of the 0 clients"),
        ([NAN, NAN], None, r"none of the 2 clients"),
        ([float("inf"), 1.0], None, r"finite"),
        ([[0.5, 0.5]], None, r"one number per client, got shape \(1, 2\)"),
        (0.5, None, r"one number per client"),
        (["good"], None, r"must be numbers"),
        ([0.5, 0.6], [1], r"2 values but 1 sizes"),
        ([0.5, 0.6], [0, 0], r"not all of them 0"),
        ([0.5, NAN], [0, 3], r"not all of them 0"),
        ([0.5, 0.6], [-1, 3], r"0 or more"),
        ([0.5, 0.6], [NAN, 3], r"0 or more"),
    ],
)
def test_what_cannot_be_compared(values, sizes, message):
    with pytest.raises(DataError, match=message):
        spread(values, sizes)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.randoms())
def test_properties(values, random):
    s = spread(values, sizes=[7] * len(values))
    shuffled = list(values)
    random.shuffle(shuffled)
    again = spread(shuffled)
    assert s.worst <= s.mean + 1e-12
    assert s.mean <= s.best + 1e-12
    assert list(s.deciles) == sorted(s.deciles)
    assert s.weighted_mean == pytest.approx(s.mean)
    assert (s.best, s.worst) == (again.best, again.worst)
    assert s.std == pytest.approx(again.std, abs=1e-12)
