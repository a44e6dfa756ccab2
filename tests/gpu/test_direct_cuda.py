"""On a CUDA device: convolutions of K clients at once are torch's, and repeat. Run by `make test-gpu`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from accord.core.plan import Plan
from accord.executors.gpu.batched import Batched
from accord.executors.gpu.precision import numerics
from accord.executors.kernels import direct
from accord.executors.kernels.products import pool
from support.federation import Given, TinyRun, tiny_data, tiny_model

pytestmark = pytest.mark.gpu

# Clients, images, their size, channels, filters, their size, padding, stride.
SHAPES = [(10, 50, 15, 64, 64, 5, 2, 1), (3, 8, 28, 64, 128, 3, 1, 2), (2, 5, 9, 17, 33, 3, 1, 1)]
WITHIN = {torch.float32: 2e-3, torch.bfloat16: 2e-2}
Found = tuple[Tensor, Tensor, Tensor]


@pytest.fixture(autouse=True)
def tf32() -> Iterator[None]:
    """As runs do."""
    pytest.importorskip("triton")
    with numerics("tf32"):
        yield


def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> Found:
    """Images and a gradient of outputs in that precision, weights in single precision."""
    clients, images, size, channels, outputs, kernel, padding, stride = shape
    seen = (size + 2 * padding - kernel) // stride + 1
    random = torch.Generator().manual_seed(0)
    x = torch.randn(clients, images, size, size, channels, generator=random)
    weight = torch.randn(clients, outputs, channels, kernel, kernel, generator=random)
    grad = torch.randn(clients, images, seen, seen, outputs, generator=random)
    return x.to(dtype), weight, grad.to(dtype)


def on_cuda(shape: tuple[int, ...], dtype: torch.dtype) -> Found:
    """Outputs and both gradients."""
    *_, padding, stride = shape
    x, weight, grad = (tensor.cuda() for tensor in drawn(shape, dtype))
    leaves = x.requires_grad_(), weight.requires_grad_()
    out = direct.convolve(*leaves, padding, padding, stride)
    grad_x, grad_weight = torch.autograd.grad(out, leaves, grad)
    return out.detach(), grad_x, grad_weight


def by_client(shape: tuple[int, ...], dtype: torch.dtype) -> Found:
    """The same by torch, in double precision."""
    *_, padding, stride = shape
    x, weight, grad = (tensor.double() for tensor in drawn(shape, dtype))
    leaves = x.requires_grad_(), weight.requires_grad_()
    outs = [
        functional.conv2d(one.permute(0, 3, 1, 2), own, None, stride, padding) for one, own in zip(*leaves, strict=True)
    ]
    out = torch.stack(outs).permute(0, 1, 3, 4, 2)
    grad_x, grad_weight = torch.autograd.grad(out, leaves, grad)
    return out.detach(), grad_x, grad_weight


@pytest.mark.parametrize("dtype", WITHIN, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_outputs_and_gradients_are_torchs_up_to_rounding(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, weight, _ = drawn(shape, dtype)
    assert direct.suits(x.cuda(), weight[0])
    types = dtype, dtype, torch.float32
    for found, expected, kind in zip(on_cuda(shape, dtype), by_client(shape, dtype), types, strict=True):
        assert (found.shape, found.dtype, found.is_contiguous()) == (expected.shape, kind, True)
        apart = torch.linalg.norm(found.double().cpu() - expected) / torch.linalg.norm(expected)
        assert apart < WITHIN[dtype]


@pytest.mark.parametrize("dtype", WITHIN, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_repeats_give_the_same_bits(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    first = on_cuda(shape, dtype)
    for _ in range(3):
        assert all(torch.equal(one, other) for one, other in zip(first, on_cuda(shape, dtype), strict=True))


def test_exact_single_precision_is_not_for_it() -> None:
    x, weight, _ = drawn(SHAPES[0], torch.float32)
    with numerics("fp32"):
        assert not direct.suits(x.cuda(), weight[0])
        assert direct.suits(x.cuda().bfloat16(), weight[0])
    assert not direct.suits(x.cuda().double(), weight[0])


@pytest.mark.parametrize("unusual", [False, True], ids=["ties", "ties and NaN"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_overlapping_windows_are_pooled_as_torch_does(dtype: torch.dtype, unusual: bool) -> None:
    """Many pixels of a window are equal; gradients are small whole numbers, whose sums are exact in any order."""
    random = torch.Generator().manual_seed(0)
    x = torch.randint(0, 4, (3, 4, 12, 15, 5), generator=random).to(dtype)
    if unusual:
        x[torch.rand(x.shape, generator=random) < 0.05] = torch.nan
    theirs = x.permute(0, 1, 4, 2, 3).flatten(0, 1).contiguous().cuda().requires_grad_()
    expected = functional.max_pool2d(theirs, 3, 2)
    weights: Any = torch.randint(1, 20, expected.shape, generator=random).to(theirs)
    (grad,) = torch.autograd.grad(expected, theirs, weights)
    mine = x.cuda().requires_grad_()
    found = pool(mine, (3, 3), (2, 2))
    (own,) = torch.autograd.grad(found, mine, weights.unflatten(0, (3, 4)).permute(0, 1, 3, 4, 2))
    found, own = (tensor.permute(0, 1, 4, 2, 3).flatten(0, 1) for tensor in (found, own))
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(own, grad)


@pytest.mark.filterwarnings("ignore", "error:task .* cannot be")  # torch's compiler warns of its own choices
def test_compiled_clients_move_as_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution with a stride, between layers that the compiler fuses; the other run is exact.

    Of three clients the first goes alone, and the two after it are a stack.
    """
    from accord.executors.kernels import tiles

    # Seen where it runs: a compiled step is traced once, and its operators call these kernels every time.
    used, images, moves = set(), tiles.images, []
    monkeypatch.setattr(tiles, "images", lambda *given: used.add(given[4:6]) or images(*given))
    torch.compiler.reset()
    for compiled, precision in ((True, "tf32"), (False, "fp32")):
        model = tiny_model("fedbr_cnn", shape=(1, 28, 28), device="cuda", form={"compiled": compiled})
        plan = Plan(steps=2, batch_size=4)
        options: Any = {"executor": Batched} if compiled else {}
        with numerics(precision):
            data = tiny_data(shape=(1, 28, 28))
            run = TinyRun("fedavg", model=model, data=data, sampler=Given([0, 2, 3]), lr=0.001, plan=plan, **options)
            before = {leaf: value.clone() for leaf, value in run.state["model"].items()}
            run.rounds(1)
        moves.append({leaf: value - before[leaf] for leaf, value in run.state["model"].items()})
    assert used == {(2, 1), (1, 2)}  # stride and spread: forward, and the images' gradient
    for leaf, move in moves[1].items():
        assert torch.linalg.norm(moves[0][leaf] - move) < 0.1 * torch.linalg.norm(move), leaf
