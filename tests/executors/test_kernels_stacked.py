"""Layers under `torch.vmap` with each client's own weights: what torch's layers compute client by client."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from accord.executors.kernels import products, stacked
from accord.executors.kernels.stacked import StackableConv2d, stacked_layers

K = 3


def by_stack(network: nn.Module, params: dict[str, Tensor], x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """[K, ...] outputs, and the gradients of their squares' sum for x and every parameter."""
    leaves = [t.detach().requires_grad_() for t in (x, *params.values())]

    def one(x: Tensor, *values: Tensor) -> Tensor:
        out: Tensor = functional_call(network, dict(zip(params, values, strict=True)), (x,))
        return out

    out = torch.vmap(one)(*leaves)
    return out, list(torch.autograd.grad(out.pow(2).sum(), leaves))


def by_client(network: nn.Module, params: dict[str, Tensor], x: Tensor) -> tuple[Tensor, list[Tensor]]:
    leaves = [t.detach().requires_grad_() for t in (x, *params.values())]
    outs = [
        functional_call(
            network, {name: leaf[k] for name, leaf in zip(params, leaves[1:], strict=True)}, (leaves[0][k],)
        )
        for k in range(K)
    ]
    out = torch.stack(outs)
    return out, list(torch.autograd.grad(out.pow(2).sum(), leaves))


def check(network: nn.Module, *shape: int, within: float = 1e-10, x: Tensor | None = None) -> None:
    torch.manual_seed(0)
    params = {name: torch.randn(K, *p.shape) for name, p in network.named_parameters()}
    x = torch.randn(K, *shape) if x is None else x
    mine, theirs = by_stack(stacked_layers(copy.deepcopy(network)), params, x), by_client(network, params, x)
    for a, b in zip((mine[0], *mine[1]), (theirs[0], *theirs[1]), strict=True):
        torch.testing.assert_close(a, b, rtol=within, atol=within)


@pytest.mark.parametrize("tiles", [1, 8, 1 << 30])
def test_convolutions(tiles: int, float64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixels in one piece, in some, in as many as possible; rows of 45, 24 and 16 numbers, the first is not even."""
    monkeypatch.setattr(products, "TILES", tiles)
    monkeypatch.setattr(products, "LEAST", 5)
    layers = (
        *(nn.Conv2d(3, 4, (3, 5), padding=(1, 2)), nn.ReLU(), nn.Conv2d(4, 4, (2, 3), bias=False)),
        *(nn.ReLU(), nn.Conv2d(4, 5, 2, padding=1)),
    )
    check(nn.Sequential(*layers), 4, 3, 7, 6)


def test_wide_layers_in_single_precision_turn_a_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_pieces", None)  # the other way
    check(nn.Conv2d(64, 3, 3, padding=1), 2, 64, 4, 4, within=1e-3)  # values around 100, gradients around 10,000


def test_an_uneven_row_without_a_bias(float64: None) -> None:
    check(nn.Conv2d(1, 2, 3, bias=False), 2, 1, 5, 5)


def test_large_images_are_left_to_torch(float64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "MOST", 0)
    monkeypatch.setattr(products._Windows, "apply", None)
    check(nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 2, 2, bias=False)), 2, 2, 5, 4)


@pytest.mark.parametrize(
    "other",
    [
        *({"stride": 2}, {"stride": (1, 2)}, {"dilation": 2}, {"groups": 2}, {"padding": "same"}),
        {"padding": 1, "padding_mode": "circular"},
    ],
)
def test_unusual_convolutions(other: dict[str, Any], float64: None) -> None:
    check(nn.Conv2d(2, 4, 3, **other), 2, 2, 6, 6)


@pytest.mark.parametrize("shape", [(6,), (2, 6)])
def test_linear_layers(shape: tuple[int, ...], float64: None) -> None:
    check(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4, bias=False)), 3, *shape)


@pytest.mark.parametrize(
    "layer",
    [
        *(nn.MaxPool2d(2), nn.MaxPool2d((2, 3)), nn.MaxPool2d(3, 2, padding=1)),
        *(nn.MaxPool2d(3, 2), nn.MaxPool2d((3, 2), (1, 2)), nn.MaxPool2d(2, 3)),
    ],
)
@pytest.mark.parametrize("odd", [False, True])
def test_pooling_gives_the_gradient_to_the_first_of_equals(layer: nn.Module, odd: bool, float64: None) -> None:
    torch.manual_seed(1)
    x = torch.randint(0, 3, (K, 2, 2, 7 if odd else 6, 8 if odd else 6)).double()
    check(layer, within=0.0, x=x)


def test_pooling_hands_on_what_is_no_number() -> None:
    x = torch.tensor([[1.0, torch.nan], [2.0, 3.0]]).view(1, 1, 1, 2, 2)
    assert products.pool(x.permute(0, 1, 3, 4, 2), (2, 2), (2, 2)).isnan().all()


@pytest.mark.parametrize(
    "layer",
    [
        *(nn.GroupNorm(2, 4), nn.GroupNorm(4, 4, affine=False), nn.GroupNorm(2, 4, eps=0.5)),
        *(nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d((1, 1)), nn.AdaptiveAvgPool2d(2)),
    ],
)
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of a pool to more than one pixel
def test_other_layers(layer: nn.Module, float64: None) -> None:
    check(layer, 2, 4, 6, 6)


def test_weights_that_all_clients_share(float64: None) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3))
    x = torch.randn(K, 2, 1, 6, 6)
    mine = torch.vmap(stacked_layers(copy.deepcopy(plain)))(x)
    torch.testing.assert_close(mine, torch.stack([plain(one) for one in x]), rtol=1e-10, atol=1e-10)


def test_bf16_is_asked_for_by_autocast() -> None:
    torch.manual_seed(0)
    network = stacked_layers(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 3)))
    params = {name: torch.randn(K, *p.shape) for name, p in network.named_parameters()}
    x = torch.randn(K, 2, 1, 6, 6)
    with torch.autocast("cpu", torch.bfloat16):
        out = torch.vmap(lambda p, x: functional_call(network, p, (x,)))(params, x)
    assert out.dtype == torch.bfloat16
    # Factors rounded to bf16, sums in single precision, each layer's result rounded again; client by client.
    for k in range(K):
        near = {name: p[k].bfloat16().float() for name, p in params.items()}
        maps = F.conv2d(x[k].bfloat16().float(), near["0.weight"], near["0.bias"]).bfloat16().float()
        exact = F.linear(maps.flatten(1), near["2.weight"], near["2.bias"])
        torch.testing.assert_close(out[k].float(), exact, rtol=0.01, atol=0.06)


def test_without_vmap_the_layer_is_the_ordinary_one() -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(1, 2, 3)
    x = torch.randn(1, 1, 5, 5)
    changed = stacked_layers(copy.deepcopy(plain))
    assert isinstance(changed, StackableConv2d)
    assert torch.equal(changed(x), plain(x))


@pytest.mark.parametrize(
    ("rows", "clients", "outputs", "inputs", "pieces"),
    [
        (256, 1, 10, 9, 4),  # one block of weights: as many pieces of 64 rows as there are
        (256, 64, 65, 64, 2),  # 64 * 2 * 1 blocks, and twice as many are wanted
        (256, 64, 65, 65, 1),  # 64 * 2 * 2 are enough
        (256, 64, 64, 64, 4),
        (63, 1, 10, 9, 1),
        (190, 1, 10, 9, 2),  # two pieces of 95 rows
        (193, 1, 10, 9, 1),  # a prime
    ],
)
def test_a_clients_rows_are_divided_where_that_gives_a_gpu_enough_to_do(
    rows: int, clients: int, outputs: int, inputs: int, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("TILES", 256), ("TILE", 64), ("LEAST", 64)):
        monkeypatch.setattr(products, name, value)
    assert products._pieces(rows, clients, outputs, inputs) == pieces


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_of_weights_is_the_same_in_pieces_and_whole(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    grad, x = torch.randn(2, 16, 3, dtype=dtype), torch.randn(2, 16, 5, dtype=dtype)
    expected = torch.einsum("kmo,kmi->koi", grad.double(), x.double())
    for wide, pieces in ((1, 1), (99, 1), (99, 2), (99, 8)):
        monkeypatch.setattr(products, "WIDE", wide)
        monkeypatch.setattr(products, "_pieces", lambda *given, pieces=pieces: pieces)
        found = products._outer(grad, x, torch.float64)
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "here"),
    [
        (nn.MaxPool2d(2), True),
        (nn.MaxPool2d((2, 3)), True),
        (nn.MaxPool2d(3, 2), True),
        (nn.MaxPool2d((3, 2), (1, 2)), True),
        (nn.MaxPool2d(2, 3), True),
        (nn.MaxPool2d((1, 127), 1), True),
        (nn.MaxPool2d((8, 16), 1), False),  # 128 pixels
        (nn.MaxPool2d(2, padding=1), False),
        (nn.MaxPool2d(2, dilation=2), False),
        (nn.MaxPool2d(2, ceil_mode=True), False),
    ],
)
def test_windows_without_padding_are_pooled_here(layer: nn.Module, here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    pool = products.pool

    def noting(x: Tensor, size: tuple[int, int], stride: tuple[int, int]) -> Tensor:
        seen.append(size)
        return pool(x, size, stride)

    monkeypatch.setattr(stacked, "pool", noting)
    x = torch.rand(K, 2, 2, 8, 127)
    found = torch.vmap(stacked_layers(copy.deepcopy(layer)))(x)
    assert torch.equal(found, torch.stack([layer(one) for one in x]))
    assert bool(seen) is here
    images = stacked_layers(copy.deepcopy(layer))(x[0])
    assert torch.equal(images, layer(x[0]))
    assert len(seen) == here, "only for a stack"


def test_products_are_as_exact_as_the_weights() -> None:
    torch.manual_seed(0)
    network = stacked_layers(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 3)))
    params = {name: torch.randn(K, *p.shape, dtype=torch.float64) for name, p in network.named_parameters()}
    x = torch.randn(K, 2, 1, 6, 6)
    both = torch.vmap(lambda p, x: functional_call(network, p, (x,)))
    assert both(params, x).dtype == torch.float64
    assert torch.equal(both(params, x), both(params, x.double()))
    dense = stacked_layers(nn.Linear(4, 3))
    weights = {name: torch.randn(K, *p.shape, dtype=torch.float64) for name, p in dense.named_parameters()}
    rows = torch.randn(K, 2, 4)
    found = torch.vmap(lambda p, x: functional_call(dense, p, (x,)))(weights, rows)
    expected = torch.einsum("kni,koi->kno", rows.double(), weights["weight"]) + weights["bias"][:, None]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_half_precision_is_normalised_in_single() -> None:
    """256 and 258 lie one from their mean, which bfloat16 does not have."""
    x = torch.tensor([[[256.0, 258.0], [258.0, 256.0]]]).expand(K, 1, 2, 2).bfloat16()
    found = torch.vmap(stacked_layers(nn.GroupNorm(1, 2, eps=0.0)))(x)
    assert found.float().tolist() == [[[[-1.0, 1.0], [1.0, -1.0]]]] * K


def test_layers_that_know_of_a_stack_take_the_place_of_these_very_kinds() -> None:
    class Own(nn.Linear):
        """A user's, which has perhaps a forward of its own."""

    plain = [nn.Conv2d(1, 1, 1), nn.Linear(1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.GroupNorm(1, 1)]
    network = stacked_layers(nn.Sequential(*plain, nn.AdaptiveAvgPool2d(1), Own(1, 1), nn.Tanh()))
    names = ["Conv2d", "Linear", "ReLU", "MaxPool2d", "GroupNorm", "AdaptiveAvgPool2d"]
    assert [type(layer).__name__ for layer in network] == [*(f"Stackable{name}" for name in names), "Own", "Tanh"]
