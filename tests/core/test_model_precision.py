"""Rounded products and another layout of images: the same network, nearly or exactly the same numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from accord.core.model import Model
from accord.executors.gpu.precision import numerics
from accord.models import MODELS, adapt
from support.federation import TinyRun, suited, tiny_data

SHAPE = (1, 28, 28)


def made(name: str = "mcmahan_cnn", **form: bool) -> Model:
    torch.manual_seed(0)
    return suited(MODELS[name](SHAPE, 3), form=form)


def gradient(model: Model, x: torch.Tensor) -> dict[str, torch.Tensor]:
    params, buffers = model.init()
    leaves = {name: t.requires_grad_() for name, t in model.owned(params).items()}
    logits = model.train(leaves, buffers, x).logits
    assert logits.dtype == torch.float32
    grads = torch.autograd.grad(logits.square().sum(), list(leaves.values()))
    return dict(zip(leaves, grads, strict=True))


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(6, *SHAPE, generator=torch.Generator().manual_seed(1))


def test_bf16_rounds_products_and_returns_single_precision(x: torch.Tensor) -> None:
    plain, rounded = made(), made(bf16=True)
    exact, near = (m.reference(*m.init(), x) for m in (plain, rounded))
    assert near.features.dtype == torch.float32
    assert not torch.equal(exact.logits, near.logits)
    assert torch.allclose(exact.logits, near.logits, atol=0.02)
    slopes, rough = gradient(plain, x), gradient(rounded, x)
    for name, slope in slopes.items():
        assert rough[name].dtype == torch.float32
        # Rounding also changes which of two near values max pooling takes.
        assert torch.cosine_similarity(rough[name].flatten(), slope.flatten(), dim=0) > 0.98, name
    maps = rounded.maps(*rounded.init(), x)
    assert torch.allclose(maps.float(), plain.maps(*plain.init(), x), atol=0.05)
    features = exact.features
    assert torch.allclose(rounded.head(rounded.init()[0], features), plain.head(plain.init()[0], features), atol=0.02)


def test_the_gradients_own_gradient_goes_through_rounded_weights(x: torch.Tensor) -> None:
    model = made(bf16=True)
    params, buffers = model.init()
    leaves = {name: t.requires_grad_() for name, t in params.items()}
    loss = model.train(leaves, buffers, x).logits.square().sum()
    first = torch.autograd.grad(loss, list(leaves.values()), create_graph=True)
    size = torch.stack([g.square().sum() for g in first]).sum()
    second = torch.autograd.grad(size, list(leaves.values()), allow_unused=True, materialize_grads=True)
    assert any(bool(g.abs().sum() > 0) for g in second)


def test_norm_layers_keep_their_precision() -> None:
    model = suited(MODELS["fedbr_cnn"](SHAPE, 3), form={"bf16": True})
    assert model.norm_names
    params, buffers = model.init()
    out = model.train({n: t.requires_grad_() for n, t in params.items()}, buffers, torch.randn(4, *SHAPE))
    assert torch.isfinite(out.logits).all()
    # Its features are the norm layer's output: to the bit what they are without rounding, with a scale and a shift
    # that bf16 does not have.
    layers = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 3))
    x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    found = []
    for form in ({"bf16": True}, {}):
        made = suited(adapt(layers, head="2", example=torch.zeros(2, 1, 8, 8)), form=form)
        params, buffers = made.init()
        params["module.1.weight"] += 2**-12
        params["module.1.bias"] += 1 + 2**-12
        found.append((made.train(params, buffers, x), buffers["module.1.running_var"]))
    (rounded, rough), (plain, exact) = found
    assert torch.equal(rounded.features, plain.features)
    assert torch.equal(rough, exact)
    assert not torch.equal(rounded.logits, plain.logits)


class Scaled(nn.Module):
    """A weight that no product of matrices reads."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), 1 + 2**-12))
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x.flatten(1) * self.scale)


@pytest.mark.parametrize(("form", "scale"), [({}, 1 + 2**-12), ({"bf16": True}, 1.0)])
def test_all_weights_are_rounded_whoever_reads_them(form: dict[str, bool], scale: float) -> None:
    """bf16 has 8 bits: 1 + 2^-12 is 1 in it."""
    model = suited(adapt(Scaled(), head="head", example=torch.zeros(2, 4)), form=form)
    x = torch.tensor([[1.0, 2.0, -3.0, 0.5]])
    assert torch.equal(model.train(*model.init(), x).features, x * scale)


def test_channels_last_is_only_a_layout(x: torch.Tensor) -> None:
    plain, last = made(), made(channels_last=True)
    weight = last.owned(last.init()[0])[_conv(last)]
    assert weight.is_contiguous(memory_format=torch.channels_last)
    for name, slope in gradient(plain, x).items():
        assert torch.allclose(gradient(last, x)[name], slope, rtol=1e-4, atol=1e-4), name


def _conv(model: Model) -> str:
    return next(name for name, t in model.init()[0].items() if t.dim() == 4 and t.shape[1] > 1)


@pytest.mark.parametrize("form", [{"bf16": True}, {"channels_last": True}])
def test_a_round_trains_with_it(form: dict[str, bool]) -> None:
    data = tiny_data(shape=SHAPE)
    exact = TinyRun("fedavg", model=made(), data=data, lr=0.01).rounds(1).state["model"]
    other = TinyRun("fedavg", model=made(**form), data=data, lr=0.01).rounds(1).state["model"]
    for name, value in exact.items():
        assert torch.allclose(other[name], value, atol=0.01), name


def test_numerics_are_put_back() -> None:
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    with numerics("fp32"):
        assert not torch.backends.cudnn.allow_tf32
        assert torch.backends.cudnn.deterministic
    with numerics("tf32"):
        assert torch.backends.cuda.matmul.allow_tf32
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32) == before


def test_a_head_alone_computes_in_the_models_precision() -> None:
    """1 + 2^-10 is 1 in bf16; numbers of double precision are left as they are."""
    layers = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False))
    for weight in layers.parameters():
        nn.init.constant_(weight, 1 + 2**-10)
    one = torch.ones(1, 1)
    for bf16, wanted in ((False, 1 + 2**-10), (True, 1.0)):
        model = Model(adapt(layers, head="1"), bf16=bf16)
        found = model.head(model.init()[0], one)
        assert (found.dtype, found.tolist()) == (torch.float32, [[wanted, wanted]])
    double = {f"network.{name}": t.double() for name, t in model.init()[0].items()}
    kept = model._rounded(double)
    assert all(kept[name] is value for name, value in double.items())
