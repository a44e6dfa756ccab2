"""Shapes in a model's record: whole numbers, all of them."""

from __future__ import annotations

from typing import Any

import pytest

from accord.deploy import facts
from accord.deploy.rebuilt import SHAPE


@pytest.mark.parametrize(
    ("value", "fits"), [([], True), ([3, 4], True), ([3, "4"], False), ([0.5], False), ((3,), False), (3, False)]
)
def test_a_shape_is_a_list_of_whole_numbers(value: Any, fits: bool) -> None:
    assert SHAPE.fits(value) == fits


@pytest.mark.parametrize(
    ("value", "fits"), [([], True), ([3, 4], True), ([3, 0], False), ([1 << 31], False), ([-1], False)]
)
def test_an_input_has_numbers_and_not_too_many(value: Any, fits: bool) -> None:
    assert facts.SHAPE.fits(value) == fits
