"""Convolutions of K clients at once: torch's own of each client, on a CPU; and where they are chosen."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from accord.executors.gpu import compiler
from accord.executors.gpu.batched import Batched
from accord.executors.gpu.precision import numerics
from accord.executors.kernels import direct, products, stacked
from accord.executors.kernels.stacked import stacked_layers
from support.federation import Given, TinyRun, tiny_data, tiny_model

OPERATORS = torch.ops.accord.convolve.default, torch.ops.accord.convolve_gradient.default


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


def by_client(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int], stride: int
) -> tuple[Tensor, Tensor]:
    """Torch's outputs [K, N, H', W', O] in double precision, and what each of their values is weighted with."""
    outs = [
        functional.conv2d(one.double().permute(0, 3, 1, 2), own.double(), None, stride, padding)
        for one, own in zip(x, weight, strict=True)
    ]
    out = torch.stack(outs).permute(0, 1, 3, 4, 2)
    out = out if bias is None else out + bias[:, None, None, None]
    return out, drawn(*out.shape)


def close(found: Tensor, expected: Tensor, within: float = 1e-11) -> bool:
    return found.shape == expected.shape and bool(((found.double() - expected).abs() <= within).all())


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Everything suits, and all images are large; the strides of what was computed so."""
    strides: list[tuple[int, ...]] = []
    convolve = direct.convolve

    def noting(x: Tensor, weight: Tensor, top: int, left: int, stride: int) -> Tensor:
        strides.append((top, left, stride))
        return convolve(x, weight, top, left, stride)

    monkeypatch.setattr(direct, "convolve", noting)
    monkeypatch.setattr(direct, "suits", lambda x, weight: True)
    monkeypatch.setattr(stacked, "suits", lambda x, weight: True)
    monkeypatch.setattr(products, "MOST", 0)
    return strides


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (2, 0), (1, 3)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 5), (2, 4)])
@pytest.mark.parametrize("size", [(9, 9), (8, 11), (10, 7)])
def test_outputs_and_gradients_are_torchs(
    size: tuple[int, int], kernel: tuple[int, int], padding: tuple[int, int], stride: int
) -> None:
    """Sizes leave rows and columns over that no filter reaches, and padding is more than some kernels see."""
    x = drawn(2, 3, *size, 4).requires_grad_()
    weight = drawn(2, 5, 4, *kernel).requires_grad_()
    expected, factor = by_client(x, weight, None, padding, stride)
    slopes = torch.autograd.grad((expected * factor).sum(), (x, weight))
    found = direct.convolve(x, weight, *padding, stride)
    mine = torch.autograd.grad((found * factor).sum(), (x, weight))
    assert found.is_contiguous()
    assert close(found, expected)
    assert all(close(own, slope) for own, slope in zip(mine, slopes, strict=True))
    (alone,) = torch.autograd.grad((direct.convolve(x.detach(), weight, *padding, stride) * factor).sum(), weight)
    assert torch.equal(alone, mine[1]), "of images that want no gradient"
    (alone,) = torch.autograd.grad((direct.convolve(x, weight.detach(), *padding, stride) * factor).sum(), x)
    assert torch.equal(alone, mine[0]), "of weights that want none"


def test_any_layout_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's kernels are given none but contiguous tensors, and take that for granted."""
    settled: list[bool] = []

    def noted(operator: Any) -> Any:
        def noting(x: Tensor, other: Tensor, *given: int) -> Any:
            settled.extend((x.is_contiguous(), other.is_contiguous()))
            return operator(x, other, *given)

        return noting

    for name in ("images", "filters_gradient"):
        monkeypatch.setattr(direct, name, noted(getattr(direct, name)))
    x, weight = drawn(2, 3, 4, 6, 5), drawn(2, 7, 3, 3, 4)
    turned, filters = x.permute(0, 1, 3, 4, 2).requires_grad_(), weight.permute(0, 1, 4, 2, 3).requires_grad_()
    expected, _ = by_client(turned, filters, None, (1, 1), 1)
    found = direct.convolve(turned, filters, 1, 1, 1)
    assert close(found, expected)
    ones = torch.ones(()).double().expand(found.shape)
    slopes = torch.autograd.grad(expected, (turned, filters), ones)
    mine = torch.autograd.grad(found, (turned, filters), ones)
    assert all(close(own, slope) for own, slope in zip(mine, slopes, strict=True))
    assert settled == [True] * 6


def test_images_in_bf16_and_weights_in_single_precision() -> None:
    x, weight = drawn(2, 3, 7, 6, 4).bfloat16().requires_grad_(), drawn(2, 5, 4, 3, 3).float().requires_grad_()
    expected, factor = by_client(x, weight, None, (1, 1), 2)
    slopes = torch.autograd.grad((expected * factor.bfloat16()).sum(), (x, weight))
    found = direct.convolve(x, weight, 1, 1, 2)
    mine = torch.autograd.grad(found, (x, weight), factor.bfloat16())
    assert (found.dtype, mine[0].dtype, mine[1].dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    for own, slope in zip((found, *mine), (expected, *slopes), strict=True):
        assert torch.linalg.norm(own.double() - slope.double()) < 0.02 * torch.linalg.norm(slope.double())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("asked", ["outputs", "gradient of images", "gradient of filters"])
def test_a_compiler_is_told_what_it_will_get(asked: str, stride: int, kernel: int, dtype: torch.dtype) -> None:
    """Shapes, types and strides in memory, without a computation."""
    down, right = (6 + 2 - kernel) // stride + 1, (7 + 4 - kernel) // stride + 1
    x, grad = drawn(2, 3, 6, 7, 4, dtype=dtype), drawn(2, 3, down, right, 5, dtype=dtype)
    filters, turned = drawn(2, 5, kernel, kernel, 4, dtype=dtype), drawn(2, 4, kernel, kernel, 5, dtype=dtype)
    operator, given = {
        "outputs": (OPERATORS[0], (x, filters, 1, 2, stride, 1, down, right)),
        "gradient of images": (OPERATORS[0], (grad, turned, kernel - 2, kernel - 3, 1, stride, 6, 7)),
        "gradient of filters": (OPERATORS[1], (x, grad, kernel, kernel, 1, 2, stride)),
    }[asked]
    torch.library.opcheck(operator, given)


def test_a_second_derivative_is_refused() -> None:
    """What asks for one is told so, and its clients are not stacked."""
    x, weight = drawn(1, 1, 4, 4, 2).requires_grad_(), drawn(1, 3, 2, 3, 3).requires_grad_()
    (slope,) = torch.autograd.grad(direct.convolve(x, weight, 0, 0, 1).pow(2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        torch.autograd.grad(slope.sum(), weight)


@pytest.mark.parametrize(
    ("most", "stride", "suits", "here"),
    [
        *((1 << 40, 1, True, False), (0, 1, True, True), (0, 1, False, False)),
        *((1 << 40, 2, True, True), (1 << 40, 2, False, False)),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_large_images_and_strides_where_it_suits(
    most: int, stride: int, suits: bool, here: bool, bias: bool, monkeypatch: pytest.MonkeyPatch, chosen: list[Any]
) -> None:
    asked: list[torch.Size] = []

    def answer(x: Tensor, weight: Tensor) -> bool:
        asked.append(weight.shape)
        return suits

    monkeypatch.setattr(products, "MOST", most)
    monkeypatch.setattr(direct, "suits", answer)
    x, weight, own = drawn(2, 3, 8, 7, 4), drawn(2, 5, 4, 3, 3), drawn(2, 5) if bias else None
    expected, _ = by_client(x, weight, own, (1, 2), stride)
    assert close(products.convolve(x, weight, own, (1, 2), stride), expected)
    assert chosen == [(1, 2, stride)] * here
    assert asked == ([] if most and stride == 1 else [(5, 4, 3, 3)]), "about one client's weights"


def test_images_too_many_to_be_counted_are_left_to_torch(monkeypatch: pytest.MonkeyPatch, chosen: list[Any]) -> None:
    """3 images of 8 x 7 pixels, 10 x 11 with the padding, 5 channels after the layer: 1650 numbers of a client."""
    x, weight = drawn(2, 3, 8, 7, 4), drawn(2, 5, 4, 3, 3)
    expected, _ = by_client(x, weight, None, (1, 2), 2)
    for most, here in ((1650, True), (1649, False)):
        chosen.clear()
        monkeypatch.setattr(direct, "MOST", most)
        assert close(products.convolve(x, weight, None, (1, 2), 2), expected)
        assert bool(chosen) == here
    monkeypatch.setattr(direct, "MOST", 3 * 10 * 11 * 9)
    assert direct.countable(drawn(2, 3, 8, 7, 9), drawn(2, 5, 9, 3, 3), (1, 2)), "9 channels before it"
    monkeypatch.setattr(direct, "MOST", 3 * 10 * 11 * 9 - 1)
    assert not direct.countable(drawn(2, 3, 8, 7, 9), drawn(2, 5, 9, 3, 3), (1, 2))


def test_a_bias_is_added_in_the_precision_of_the_images(chosen: list[Any]) -> None:
    x, weight, bias = drawn(2, 3, 8, 7, 4).bfloat16(), drawn(2, 5, 4, 3, 3).float(), drawn(2, 5).float()
    found = products.convolve(x, weight, bias, (0, 0), 2)
    assert chosen
    assert found.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("other", "here"),
    [
        ({"stride": 2}, [(0, 0, 2)]),
        ({"stride": 3, "padding": (1, 2)}, [(1, 2, 3)]),
        ({"stride": 2, "bias": False}, [(0, 0, 2)]),
        ({"stride": (1, 2)}, []),
        ({"stride": (2, 1)}, []),
        ({"stride": 2, "dilation": 2}, []),
        ({"stride": 2, "groups": 2}, []),
        ({"stride": 2, "padding": 1, "padding_mode": "circular"}, []),
        ({"padding": "same"}, []),
        ({"padding": 1}, [(1, 1, 1)]),
    ],
)
@pytest.mark.parametrize("traces", [False, True])
def test_a_stacks_layers_with_strides(
    other: dict[str, Any], here: list[Any], traces: bool, float64: None, chosen: list[Any]
) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(4, 6, 3, **other), nn.ReLU(), nn.Flatten(1))
    layers = stacked_layers(copy.deepcopy(plain))
    given = [drawn(3, 2, 4, 9, 8), *(drawn(3, *p.shape) for p in plain.parameters())]
    names = [name for name, _ in plain.named_parameters()]

    def one(network: nn.Module, x: Tensor, *values: Tensor) -> Tensor:
        out: Tensor = functional_call(network, dict(zip(names, values, strict=True)), (x,))
        return out

    def together(*leaves: Tensor) -> tuple[Tensor, ...]:
        leaves = tuple(leaf.detach().requires_grad_() for leaf in leaves)
        out = torch.vmap(lambda *own: one(layers, *own))(*leaves)
        return out, *torch.autograd.grad(out.pow(2).sum(), leaves)

    leaves = [leaf.clone().requires_grad_() for leaf in given]
    expected = torch.stack([one(plain, *own) for own in zip(*leaves, strict=True)])
    slopes = torch.autograd.grad(expected.pow(2).sum(), leaves)
    if traces:
        graph = make_fx(together)(*given)
        assert any(node.target in OPERATORS for node in graph.graph.nodes) == bool(here)
        found = graph(*given)
    else:
        found = together(*given)
    assert chosen == here
    for own, value in zip(found, (expected, *slopes), strict=True):
        torch.testing.assert_close(own, value, rtol=1e-10, atol=1e-10)


def test_a_stride_that_does_not_suit_is_left_to_torch(float64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked about the weights of one client, also under `torch.vmap`."""
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(stacked, "suits", lambda x, weight: bool(asked.append(tuple(weight.shape))))
    monkeypatch.setattr(stacked, "convolve", None)
    plain = nn.Conv2d(4, 6, 3, stride=2)
    x, weight, bias = drawn(3, 2, 4, 9, 8), drawn(3, 6, 4, 3, 3), drawn(3, 6)
    layer = stacked_layers(copy.deepcopy(plain))
    found = torch.vmap(lambda x, *own: functional_call(layer, dict(zip(("weight", "bias"), own, strict=True)), (x,)))(
        x, weight, bias
    )
    expected = torch.stack([functional.conv2d(*own, stride=2) for own in zip(x, weight, bias, strict=True)])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert asked == [(6, 4, 3, 3)]


@pytest.mark.parametrize(
    ("on_gpu", "dtype", "precision", "outputs", "inputs", "installed", "suits"),
    [
        (True, torch.float32, "tf32", 16, 16, True, True),
        (True, torch.bfloat16, "tf32", 16, 16, True, True),
        (True, torch.bfloat16, "fp32", 16, 16, True, True),
        (True, torch.float32, "fp32", 16, 16, True, False),
        (True, torch.float64, "tf32", 16, 16, True, False),
        (True, torch.float16, "tf32", 16, 16, True, False),
        (True, torch.float32, "tf32", 15, 64, True, False),
        (True, torch.float32, "tf32", 64, 15, True, False),
        (True, torch.float32, "tf32", 64, 64, False, False),
        (False, torch.float32, "tf32", 64, 64, True, False),
    ],
)
def test_what_it_suits(
    on_gpu: bool,
    dtype: torch.dtype,
    precision: str,
    outputs: int,
    inputs: int,
    installed: bool,
    suits: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x: Any = SimpleNamespace(is_cuda=on_gpu, dtype=dtype)
    monkeypatch.setattr(direct, "find_spec", lambda name: name if installed else None)
    with numerics(precision):
        assert direct.suits(x, torch.empty(outputs, inputs, 3, 3)) is suits
        assert direct.suits(torch.empty(2, 3, 8, 8, inputs, dtype=dtype), torch.empty(outputs, inputs, 1, 1)) is False


def started(model: str, compiled: bool, **options: Any) -> TinyRun:
    """One round of two clients, lanes side by side or a stack."""
    data = tiny_data(shape=(2, 10, 9), dtype=torch.float64)
    network = tiny_model(model, shape=(2, 10, 9), form={"compiled": compiled})
    return TinyRun("fedavg", model=network, data=data, sampler=Given([0, 2]), executor=Batched, **options).rounds(1)


@pytest.mark.parametrize("model", ["fedbr_cnn", "fedufo_cnn"])
@pytest.mark.parametrize("tracer", ["none", "aot_eager"])
def test_a_stack_of_clients_gives_the_numbers_of_lanes(
    model: str, tracer: str, float64: None, chosen: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stride of two and group norm; overlapping pools. Torch's own tracer believes what the operators say of them."""
    graphs: list[Any] = []

    def keep(graph: Any) -> Any:
        graphs.append(graph)
        return graph if tracer == "none" else torch.compile(graph, backend=tracer, dynamic=False)

    monkeypatch.setattr(compiler, "compiled", keep)
    alone = started(model, False)
    assert not chosen
    together = started(model, True)
    assert {stride for *_, stride in chosen} == ({1, 2} if model == "fedbr_cnn" else {1})
    (graph,) = graphs
    targets = [node.target for node in graph.graph.nodes]
    layers = len(chosen)
    assert (targets.count(OPERATORS[0]), targets.count(OPERATORS[1])) == (2 * layers - 1, layers)  # images want none
    for leaf, value in alone.state["model"].items():
        apart = (together.state["model"][leaf] - value).abs().max()
        assert apart <= 1e-9 * value.abs().max(), leaf
