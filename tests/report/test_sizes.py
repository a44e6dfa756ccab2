"""Bytes."""

from __future__ import annotations

import pytest

from accord.errors import DataError
from accord.report.sizes import human_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1549, "1.5 kB"),
        (999_900, "999.9 kB"),
        (999_999, "1.0 MB"),
        (1_300_000, "1.3 MB"),
        (6_653_480, "6.7 MB"),  # 1,663,370 parameters in single precision
        (2.5e9, "2.5 GB"),
        (4e12, "4.0 TB"),
        (7e18, "7000.0 PB"),
        (999.7, "1.0 kB"),
    ],
)
def test_for_people(count, text):
    assert human_bytes(count) == text


@pytest.mark.parametrize("count", [-1, float("nan"), float("inf")])
def test_no_such_number_of_bytes(count):
    with pytest.raises(DataError, match=r"0 or more"):
        human_bytes(count)
