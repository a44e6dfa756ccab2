"""Positions in few bytes, and real numbers in eight bits: what comes out is what went in, or a DataError."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from accord.errors import DataError
from accord.filters import gaps
from accord.filters.quantisation import quantised, restored

PLACES = st.integers(1, 5000).flatmap(
    lambda length: st.tuples(st.just(length), st.sets(st.integers(0, length - 1), max_size=200))
)


@settings(max_examples=150, deadline=None)
@given(PLACES)
def test_places_come_back_as_they_went(case: tuple[int, set[int]]) -> None:
    length, chosen = case
    places = np.array(sorted(chosen), np.int64)
    data = gaps.encode(places, length)
    assert data.dtype == np.uint8
    assert gaps.decode(data, length).tolist() == places.tolist()
    assert len(data) <= 1 + min(-(-length // 8), sum(2 if gap > 127 else 1 for gap in np.diff(places, prepend=-1) - 1))


def test_sizes_by_hand() -> None:
    # gaps 0, 127, 128 take 1, 1 and 2 bytes (128 = 0 + 1 * 128: the bytes 0x80, 0x01); the first byte says "gaps".
    places = np.array([0, 128, 257])
    assert gaps.encode(places, 100_000).tolist() == [0, 0, 127, 0x80, 0x01]
    # every second of 64: gaps would take 32 bytes, bits take 8
    assert gaps.encode(np.arange(0, 64, 2), 64).tolist() == [1] + [0b10101010] * 8
    # one in a hundred: a byte and a bit each, where whole numbers would take four
    rng = np.random.default_rng(0)
    places = np.sort(rng.choice(10**6, 10**4, replace=False))
    assert len(gaps.encode(places, 10**6)) < 1.35 * 10**4


@pytest.mark.parametrize(
    "data",
    [
        [],
        [7],
        [0, 0x80],
        [0, 5],
        [0, 0, 0, 0, 0, 0, 0],
        [1, 0xFF],
        [1, 0xFF, 0xFF],
        [0] + [0x80] * 12 + [1],
        [1, 0b111],
    ],
)
def test_bytes_that_are_no_places_are_refused(data: list[int]) -> None:
    with pytest.raises(DataError):
        gaps.decode(np.array(data, np.uint8), 5)


@settings(max_examples=200, deadline=None)
@given(arrays.arrays(np.uint8, st.integers(0, 40)), st.integers(1, 300))
def test_any_bytes_are_places_or_a_data_error(data: np.ndarray, length: int) -> None:
    try:
        places = gaps.decode(data, length)
    except DataError:
        return
    assert all(a < b for a, b in itertools.pairwise(places))
    assert len(places) == 0 or (places[0] >= 0 and places[-1] < length)


VALUES = arrays.arrays(np.float32, st.integers(1, 60), elements=st.floats(-1e6, 1e6, width=32))


@settings(max_examples=150, deadline=None)
@given(VALUES, st.integers(0, 99))
def test_eight_bits_are_within_one_step(values: np.ndarray, seed: int) -> None:
    tensor = torch.from_numpy(values)
    steps, step = quantised(tensor, np.random.default_rng(seed))
    assert steps.dtype == torch.int8
    assert steps.abs().max() <= 127
    assert step.dtype == torch.float32
    assert step.dim() == 0
    error = (restored(steps, step).double() - tensor.double()).abs()
    assert float(error.max()) <= float(step) * (1 + 1e-6)
    assert float(step) <= float(tensor.abs().max()) / 127 * (1 + 1e-6) + 1e-38


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_has_no_bias(dtype: torch.dtype) -> None:
    values = torch.tensor([0.3, -0.7, 1.0, 0.0, -1.0, 0.004, 0.999], dtype=dtype)
    rng = np.random.default_rng(5)
    draws = 4000
    total = torch.zeros(len(values), dtype=torch.float64)
    for _ in range(draws):
        total += restored(*quantised(values, rng)).double()
    step = 1 / 127
    # the rounding error is below a step, so its deviation is below half a step: five of those of the mean
    assert float((total / draws - values.double()).abs().max()) < 5 * 0.5 * step / draws**0.5
    assert float(quantised(values, rng)[1]) == pytest.approx(step, rel=1e-6)


def test_nothing_but_zeros() -> None:
    steps, step = quantised(torch.zeros(3, 2), np.random.default_rng(0))
    assert not steps.any()
    assert float(step) == 0.0
    assert restored(steps, step).tolist() == torch.zeros(3, 2).tolist()
