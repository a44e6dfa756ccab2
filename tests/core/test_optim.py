"""Optimizers against torch's own, schedules against hand-computed rates."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from accord.core.optim import SGD, Adam, Schedule, _laid_out_as, clip_by_norm
from accord.errors import ConfigError

CASES: list[tuple[Any, Any]] = [
    (SGD(), lambda p: torch.optim.SGD(p, 0.1)),
    (SGD(0.9, 0.01), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01)),
    (SGD(0.9, 0.01, True), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, nesterov=True)),
    (Adam(), lambda p: torch.optim.Adam(p, 0.1)),
    (Adam(weight_decay=0.1), lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.1)),
    (
        Adam((0.8, 0.9), 1e-6, 0.1, decoupled=True),
        lambda p: torch.optim.AdamW(p, 0.1, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1),
    ),
]


@pytest.mark.parametrize(("ours", "theirs"), CASES)
def test_agrees_with_torch(ours: Any, theirs: Any, float64: None) -> None:
    torch.manual_seed(0)
    start = torch.randn(3, 2)
    mine = {"w": start.clone()}
    parameter = torch.nn.Parameter(start.clone())
    reference = theirs([parameter])
    state = ours.init(mine)
    for _ in range(7):
        grad = torch.randn(3, 2)
        parameter.grad = grad.clone()
        reference.step()
        ours.update(mine, {"w": grad}, state, torch.tensor(0.1))
    assert torch.allclose(mine["w"], parameter.detach(), rtol=0, atol=1e-12)


def test_gradients_in_another_layout_are_brought_into_the_parameters() -> None:
    """torch's fused step reads both as they lie in memory."""
    weight = torch.arange(24.0).view(2, 3, 2, 2)
    assert _laid_out_as(weight, torch.zeros(2, 3, 2, 2)) is weight
    last = torch.zeros(2, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    moved = _laid_out_as(weight, last)
    assert moved.stride() == last.stride()
    assert torch.equal(moved, weight)
    # Along a dimension of length 1 a stride means nothing: the same memory will do.
    thin = torch.arange(6.0).view(2, 3, 1, 1)
    named = torch.zeros(2, 3, 1, 1).as_strided((2, 3, 1, 1), (3, 1, 3, 3))
    shown = _laid_out_as(thin, named)
    assert shown.stride() == (3, 1, 3, 3) != thin.stride()
    assert shown.data_ptr() == thin.data_ptr()
    assert torch.equal(shown, thin)
    # One length of 1 beside a real difference: the values move.
    turned = torch.arange(6.0).view(1, 2, 3)
    other = torch.zeros(1, 3, 2).mT
    copied = _laid_out_as(turned, other)
    assert copied.stride() == other.stride()
    assert torch.equal(copied, turned)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_fused_steps_do_not_depend_on_layouts(layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    start, grad = torch.randn(2, 3, 2, 2), torch.randn(2, 3, 2, 2)
    params = {"w": start.clone().contiguous(memory_format=layout)}
    optimizer = SGD(0.9, 0.01)
    optimizer.update(params, {"w": grad}, optimizer.init(params), torch.tensor(0.1))
    torch.testing.assert_close(params["w"], start - 0.1 * (grad + 0.01 * start))


def test_nesterov_without_momentum_is_refused() -> None:
    with pytest.raises(ConfigError, match="momentum"):
        SGD(nesterov=True)


def test_clipping_keeps_the_direction() -> None:
    grads = {"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}
    clipped = clip_by_norm(grads, 1.0)
    assert clipped["a"].item() == pytest.approx(0.6)
    assert clipped["b"].item() == pytest.approx(0.8)
    assert torch.equal(clip_by_norm(grads, 10.0)["a"], grads["a"])
    exact = clip_by_norm({name: g.double() for name, g in grads.items()}, 1.0)
    assert float(exact["a"] ** 2 + exact["b"] ** 2) < 1, "none ends above the limit"
    nothing = clip_by_norm({"a": torch.zeros(2)}, 1.0)
    assert nothing["a"].tolist() == [0.0, 0.0]


def test_what_is_not_said_changes_nothing() -> None:
    assert Schedule(0.1) == Schedule(0.1, "constant", 1.0, 1, 0.0, 1)
    assert SGD() == SGD(0.0, 0.0, False)
    assert Adam() == Adam((0.9, 0.999), 1e-8, 0.0, False)


def test_schedules_by_hand() -> None:
    assert Schedule(0.1).at(99) == 0.1
    assert Schedule(0.1, "exponential", decay=0.5).at(3) == pytest.approx(0.0125)
    assert Schedule(0.1, "exponential", decay=0.5, min_lr=0.05).at(3) == 0.05
    assert Schedule(0.1, "step", decay=0.1, every=10).at(25) == pytest.approx(0.001)
    assert Schedule(1.0, "cosine", rounds=10).at(5) == pytest.approx(0.5)
    assert Schedule(1.0, "cosine", min_lr=0.2, rounds=10).at(10) == pytest.approx(0.2)
    # of a single round: its own rate, and the one at which clients train once more at the end
    assert Schedule(1.0, "cosine", min_lr=0.2, rounds=1).at(0) == 1.0
    assert Schedule(1.0, "cosine", min_lr=0.2, rounds=1).at(1) == pytest.approx(0.2)
    assert Schedule(1.0, "cosine", min_lr=0.2, rounds=10).at(30) == pytest.approx(0.2)
    assert Schedule(1.0, "cosine", min_lr=0.2, rounds=10).at(20) == pytest.approx(0.2), "it does not rise again"
    assert [Schedule(1.0, "step", decay=0.5, every=3).at(round) for round in range(7)] == [1, 1, 1, 0.5, 0.5, 0.5, 0.25]
    assert Schedule(0.1, "step", decay=0.1, every=10, min_lr=0.005).at(25) == 0.005
    assert Schedule(1.0, "cosine", rounds=4).at(1) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))


@pytest.mark.parametrize(("rho", "nesterov"), [(0.0, False), (0.5, False), (0.9, False), (0.5, True), (0.9, True)])
@pytest.mark.parametrize("steps", [0, 1, 2, 5, 20])
def test_effective_steps_by_simulation(rho: float, nesterov: bool, steps: int) -> None:
    """How far a unit gradient moves a weight at rate 1: v <- rho v + 1, then by v, or by 1 + rho v (Nesterov)."""
    velocity = moved = 0.0
    for _ in range(steps):
        velocity = rho * velocity + 1
        moved += 1 + rho * velocity if nesterov else velocity
    counted = SGD(rho, nesterov=nesterov).effective_steps(torch.tensor(float(steps), dtype=torch.float64))
    assert float(counted) == pytest.approx(moved, rel=1e-12, abs=1e-12)
