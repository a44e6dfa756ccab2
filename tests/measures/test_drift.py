"""Cosines between updates."""

from __future__ import annotations

from math import isnan, sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.errors import DataError
from accord.measures.drift import cosines


def cosine(update, reference):
    return cosines([update], reference)[0]


GLOBAL = {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor(2.0)}  # length 3


def test_by_hand():
    updates = [
        {"a": torch.tensor([[2.0, 4.0]]), "b": torch.tensor(4.0)},  # the same way
        {"a": torch.tensor([[-1.0, -2.0]]), "b": torch.tensor(-2.0)},  # the other way
        {"b": torch.tensor(-1.0), "a": torch.tensor([[2.0, 0.0]])},  # at right angles, names in another order
        {"a": torch.tensor([[0.0, 0.0]]), "b": torch.tensor(5.0)},  # 10 / (5 * 3)
        {"a": torch.tensor([[1.0, 1.0]]), "b": torch.tensor(0.0)},  # 3 / (sqrt(2) * 3)
    ]
    assert cosines(iter(updates), GLOBAL) == pytest.approx([1.0, -1.0, 0.0, 2 / 3, 1 / sqrt(2)])
    assert cosines([], GLOBAL) == []


def test_zero_updates_have_cosine_zero():
    zero = {name: torch.zeros_like(t) for name, t in GLOBAL.items()}
    assert cosines([zero, GLOBAL], GLOBAL) == [0.0, pytest.approx(1.0)]
    assert cosines([zero, GLOBAL], zero) == [0.0, 0.0]


def test_sums_run_in_double_precision():
    # In single precision 1e8 + 1 - 1e8 is 0: the cosine of these would be lost.
    a = {"w": torch.tensor([1e4, 1.0, 1e4])}
    b = {"w": torch.tensor([1e4, 1.0, -1e4])}
    assert cosine(a, b) == pytest.approx(1 / (2e8 + 1), rel=1e-9)
    small = {"w": torch.tensor([1e-30, 1e-30])}  # the squares underflow in single precision
    assert cosine(small, small) == pytest.approx(1.0)
    half = {"w": torch.tensor([300.0, 300.0], dtype=torch.float16)}  # the squares overflow in half precision
    assert cosine(half, half) == pytest.approx(1.0)


def test_broken_updates_do_not_pass_for_idle_ones():
    broken = {"a": torch.tensor([[float("nan"), 1.0]]), "b": torch.tensor(0.0)}
    assert isnan(cosine(broken, GLOBAL))
    assert isnan(cosine({"a": torch.tensor([[float("inf"), 1.0]]), "b": torch.tensor(0.0)}, GLOBAL))


def test_gradients_are_not_recorded():
    update = {name: t.clone().requires_grad_() for name, t in GLOBAL.items()}
    assert cosine(update, GLOBAL) == pytest.approx(1.0)


def test_updates_that_do_not_fit():
    with pytest.raises(DataError, match=r"only one of them has b, c"):
        cosine({"a": GLOBAL["a"], "c": GLOBAL["b"]}, GLOBAL)
    with pytest.raises(DataError, match=r"'a' has shape \(2,\) in one update and \(1, 2\) in the other"):
        cosine({"a": torch.ones(2), "b": torch.tensor(1.0)}, GLOBAL)
    with pytest.raises(DataError, match=r"without tensors"):
        cosines([GLOBAL], {})


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=6), st.floats(0.1, 10))
def test_properties(pairs, factor):
    a = {str(i): torch.tensor([x], dtype=torch.float64) for i, (x, _) in enumerate(pairs)}
    b = {str(i): torch.tensor([y], dtype=torch.float64) for i, (_, y) in enumerate(pairs)}
    value = cosine(a, b)
    assert -1 <= value <= 1
    assert cosine(b, a) == pytest.approx(value, abs=1e-12)
    if all(abs(x) > 1e-3 for pair in pairs for x in pair):
        assert cosine({n: factor * t for n, t in a.items()}, b) == pytest.approx(value, abs=1e-9)


def test_rounding_does_not_leave_the_range_of_a_cosine():
    """The root of 3, squared, is a little less than 3."""
    assert sqrt(3) * sqrt(3) < 3
    ones = {"a": torch.ones(3)}
    assert cosines([ones, {"a": -ones["a"]}], ones) == [1.0, -1.0]
