"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest
import torch

# `scripts/mutants.py` asks whether a test fails, not for the smallest example.
hypothesis.settings.register_profile(
    "mutants", derandomize=True, phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate)
)
hypothesis.settings.register_profile("accord", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("accord")


@pytest.fixture
def float64() -> Iterator[None]:
    """Models, data and rates in double precision, so that references agree to the last digits."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
