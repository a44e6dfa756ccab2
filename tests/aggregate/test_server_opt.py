"""The steps of server optimizers, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from accord.aggregate import FedAdam


@pytest.mark.parametrize(
    ("change", "second"),
    [
        (2.0, 1.0 + 0.25 * 4.0),  # its square is larger than v: v grows by (1 - b2) d^2
        (0.5, 1.0 - 0.25 * 0.25),  # smaller: v falls
        (1.0, 1.0),  # v is right: it stays
        (-1.0, 1.0),
        (0.0, 1.0),
    ],
)
def test_yogi_moves_by_the_sign_of_the_error(change: float, second: float) -> None:
    rule = FedAdam(lr=3.0, betas=(0.5, 0.75), tau=1.0, yogi=True)
    value = {"w": torch.tensor([10.0], dtype=torch.float64)}
    moments = rule.moments(value)
    assert moments["first"]["w"].tolist() == [0.0]
    assert moments["second"]["w"].tolist() == [1.0]  # tau^2
    new, moments = rule(value, {"w": torch.tensor([change], dtype=torch.float64)}, moments)
    assert moments["first"]["w"].tolist() == [0.5 * change]
    assert moments["second"]["w"].tolist() == [second]
    assert new["w"].tolist() == pytest.approx([10.0 + 3.0 * 0.5 * change / (math.sqrt(second) + 1.0)])


def test_adam_by_hand() -> None:
    """betas 0.5 and 0.75, tau 2, so v starts at 4; changes 4 and then -2."""
    rule = FedAdam(lr=2.0, betas=(0.5, 0.75), tau=2.0)
    value = {"w": torch.tensor([1.0], dtype=torch.float64)}
    moments, wanted = rule.moments(value), 1.0
    for change, first, second in (
        (4.0, 2.0, 7.0),  # 0.5 * 4; 0.75 * 4 + 0.25 * 16
        (-2.0, 0.0, 6.25),  # 0.5 * 2 - 0.5 * 2; 0.75 * 7 + 0.25 * 4
        (-2.0, -1.0, 5.6875),
    ):
        value, moments = rule(value, {"w": torch.tensor([change], dtype=torch.float64)}, moments)
        wanted += 2.0 * first / (math.sqrt(second) + 2.0)
        assert moments["first"]["w"].tolist() == [first]
        assert moments["second"]["w"].tolist() == [second]
        assert value["w"].tolist() == pytest.approx([wanted])
