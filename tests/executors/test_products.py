"""Products of K clients at once, called as they are: one client alone, uneven rows, windows, what is left to torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from accord.executors.kernels import products
from accord.executors.kernels.products import convolve, multiply, pool


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("padding", [(0, 0), (1, 2)])
@pytest.mark.parametrize(("most", "stride"), [(0, 1), (1 << 40, 1), (0, 2), (1 << 40, 2)])
def test_convolutions_are_torchs(
    clients: int, bias: bool, padding: Any, most: int, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "MOST", most)
    x, weight = drawn(clients, 3, 6, 5, 2), drawn(clients, 4, 2, 3, 2)
    own = drawn(clients, 4) if bias else None
    expected = [
        functional.conv2d(x[k].permute(0, 3, 1, 2), weight[k], None if own is None else own[k], stride, padding)
        for k in range(clients)
    ]
    found = convolve(x, weight, own, padding, stride)
    assert torch.allclose(found, torch.stack(expected).permute(0, 1, 3, 4, 2))


def test_one_client_decides_whether_windows_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 images of 6 x 5 pixels and 2 channels, windows of 3 x 2: 1080 numbers of a client."""
    x, weight = drawn(2, 3, 6, 5, 2), drawn(2, 4, 2, 3, 2)
    left = list[int]()
    monkeypatch.setattr(products, "_one_by_one", lambda *given: left.append(1) or x)
    for most, to_torch in ((1080, False), (1079, True)):
        left.clear()
        monkeypatch.setattr(products, "MOST", most)
        convolve(x, weight, None, (0, 0))
        assert bool(left) == to_torch


@pytest.mark.parametrize("clients", [1, 2])
def test_products_are_torchs(clients: int) -> None:
    x, weight, bias = drawn(clients, 5, 3), drawn(clients, 4, 3), drawn(clients, 4)
    for own in (None, bias):
        expected = [functional.linear(x[k], weight[k], None if own is None else own[k]) for k in range(clients)]
        assert torch.allclose(multiply(x, weight, own), torch.stack(expected))


def test_maxima_by_hand() -> None:
    """One image of 3 x 5 pixels, windows of 2 x 2: the last row and column are left out."""
    image = torch.tensor([[1.0, 9, 2, 2, 50], [3, 4, 2, 2, 60], [70, 70, 70, 70, 70]])
    x = image.view(1, 1, 3, 5, 1).requires_grad_()
    found = pool(x, (2, 2), (2, 2))
    assert found.shape == (1, 1, 1, 2, 1)
    assert found.flatten().tolist() == [9.0, 2.0]
    (grad,) = torch.autograd.grad((found * torch.tensor([5.0, 7.0]).view(1, 1, 1, 2, 1)).sum(), x)
    assert grad.view(3, 5).tolist() == [[0, 5, 7, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]], "of equals the first"
    tall = pool(torch.arange(6.0).view(1, 1, 3, 2, 1), (3, 1), (3, 1))
    assert tall.flatten().tolist() == [4.0, 5.0]
    with_nan = pool(torch.tensor([1.0, float("nan"), 3.0, 2.0]).view(1, 1, 2, 2, 1), (2, 2), (2, 2))
    assert with_nan.isnan().all()


def test_maxima_of_overlapping_windows_by_hand() -> None:
    """One image of 3 x 5 pixels, windows of 3 x 3 two apart: both see the 9s, of which the first counts."""
    x = torch.tensor([[1.0, 2, 9, 4, 5], [6, 7, 9, 8, 0], [1, 1, 1, 1, 1]]).view(1, 1, 3, 5, 1).requires_grad_()
    found = pool(x, (3, 3), (2, 2))
    assert found.flatten().tolist() == [9.0, 9.0]
    (grad,) = torch.autograd.grad((found * torch.tensor([5.0, 7.0]).view(1, 1, 1, 2, 1)).sum(), x)
    assert grad.view(3, 5).tolist() == [[0, 0, 12, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]


@pytest.mark.parametrize("unusual", [False, True], ids=["ties", "ties, infinities and NaN"])
@pytest.mark.parametrize(
    ("size", "stride"),
    [
        *(((3, 3), (2, 2)), ((2, 2), (1, 1)), ((5, 4), (2, 3)), ((3, 2), (1, 2)), ((4, 4), (2, 2))),
        *(((2, 3), (2, 3)), ((2, 2), (3, 3)), ((1, 3), (2, 1)), ((7, 8), (1, 1))),
    ],
)
def test_maxima_and_their_gradients_are_torchs_to_the_last_bit(size: Any, stride: Any, unusual: bool) -> None:
    """Many pixels of a window are equal; gradients are whole numbers, whose sums are exact in any order."""
    random = torch.Generator().manual_seed(4)
    x = torch.randint(0, 4, (2, 3, 7, 8, 2), generator=random).double()
    if unusual:
        for value in (torch.nan, -torch.inf, torch.inf):
            x[torch.rand(x.shape, generator=random) < 0.1] = value
        x[0, 0] = -torch.inf
        x[0, 1] = torch.nan
    theirs = x.permute(0, 1, 4, 2, 3).flatten(0, 1).contiguous().requires_grad_()
    expected = functional.max_pool2d(theirs, size, stride)
    weights = torch.randint(1, 100, expected.shape, generator=random).double()
    (grad,) = torch.autograd.grad(expected, theirs, weights)
    mine = x.requires_grad_()
    found = pool(mine, size, stride)
    (own,) = torch.autograd.grad(found, mine, weights.unflatten(0, (2, 3)).permute(0, 1, 3, 4, 2))
    torch.testing.assert_close(found.permute(0, 1, 4, 2, 3).flatten(0, 1), expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(own.permute(0, 1, 4, 2, 3).flatten(0, 1), grad)


def test_pieces_of_a_gradient_are_summed_in_the_weights_precision() -> None:
    """Two pieces of 64 rows: 256 and 1. bfloat16, in which the factors are, has no 257."""
    x = torch.cat([torch.full((1, 64, 1), 4.0), torch.full((1, 64, 1), 1 / 64)], 1).bfloat16()
    assert products._pieces(128, 1, 1, 1) == 2
    found = products._outer(torch.ones(1, 128, 1).bfloat16(), x, torch.float32)
    assert (found.dtype, found.item()) == (torch.float32, 257.0)
