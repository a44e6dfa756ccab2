"""The transformer against a second implementation, written with torch's own attention and functions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from accord.models import MODELS
from accord.models.cct import StochasticDepth


def reference(p: dict[str, Tensor], image: Tensor) -> Tensor:
    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (256,), p[f"neck.{name}.weight"], p[f"neck.{name}.bias"])

    def lin(x: Tensor, name: str) -> Tensor:
        return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))

    x = F.max_pool2d(F.conv2d(image, p["maps.0.weight"], padding=1).relu(), 3, 2, 1)
    x = x.flatten(2).mT + p["neck.positions"]
    for i in range(7):
        at = f"layers.{i}"
        q, k, v = lin(norm(x, f"{at}.norm1"), f"neck.{at}.attention.qkv").chunk(3, dim=-1)
        heads = [F.scaled_dot_product_attention(*t) for t in zip(*(u.split(64, -1) for u in (q, k, v)), strict=True)]
        x = x + lin(torch.cat(heads, dim=-1), f"neck.{at}.attention.out")
        x = norm(x, f"{at}.norm2")
        x = x + lin(F.gelu(lin(x, f"neck.{at}.mlp.0")), f"neck.{at}.mlp.3")
    x = norm(x, "norm")
    weights = F.softmax(lin(x, "neck.pool"), dim=1)
    return lin(torch.einsum("btd,bt->bd", x, weights[..., 0]), "head")


def test_forward_agrees_with_a_second_implementation():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = MODELS["cct7"]((3, 16, 16), 5).double().eval()
        for p in network.parameters():  # norms start as ones and zeros: make them matter
            p.data += 0.1 * torch.randn_like(p)
        image = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(network(image), reference(dict(network.named_parameters()), image), atol=1e-10)


def test_stochastic_depth_drops_whole_samples_and_keeps_the_mean():
    layer = StochasticDepth(0.25).train()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        out = layer(torch.ones(4000, 3, 2))
    values = out.reshape(4000, -1)
    assert torch.equal(values.amin(1), values.amax(1))
    assert set(values[:, 0].tolist()) == {0.0, (torch.ones(()) / 0.75).item()}
    # 4000 draws of a mean-1 variable with standard deviation 0.58: within five standard errors
    assert abs(values[:, 0].mean().item() - 1) < 0.046
    assert torch.equal(layer.eval()(torch.ones(2, 3, 2)), torch.ones(2, 3, 2))


def test_later_layers_are_dropped_more_often():
    network = MODELS["cct7"]((3, 8, 8), 5, stochastic_depth=0.3)
    rates = [m.drop.p for m in network.modules() if isinstance(m, StochasticDepth)]
    assert rates == [0.3 * i / 6 for i in range(1, 7)]
