"""The quick max pooling of frozen models gives torch's own numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from accord.core.model import Model
from accord.models import MODELS, adapt
from accord.models.pooling import FrozenMaxPool2d, with_frozen_pools


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (2, 3), "stride": (1, 2), "padding": (0, 1)},
        {"kernel_size": 3, "stride": 1},
        {"kernel_size": 2, "stride": 3},
        {"kernel_size": 2, "ceil_mode": True},
        {"kernel_size": 2, "dilation": 2},
    ],
)
@pytest.mark.parametrize("shape", [(2, 3, 9, 8), (3, 7, 7)])
def test_it_equals_the_layer_it_replaces(settings: dict[str, object], shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(FrozenMaxPool2d(**settings)(x), nn.MaxPool2d(**settings)(x))  # type: ignore[arg-type]


def test_not_a_number_stays_visible() -> None:
    x = torch.zeros(1, 1, 4, 4)
    x[0, 0, 1, 2] = torch.nan
    assert FrozenMaxPool2d(2)(x).isnan().tolist() == [[[[False, True], [False, False]]]]


def test_gradients_are_torchs_own() -> None:
    x = torch.ones(1, 1, 2, 2, requires_grad=True)  # four equal maxima: torch sends the gradient to the first
    (slope,) = torch.autograd.grad(FrozenMaxPool2d(2)(x).sum(), x)
    assert slope.flatten().tolist() == [1.0, 0.0, 0.0, 0.0]


def test_a_window_that_does_not_fit_is_refused_as_ever() -> None:
    with pytest.raises(RuntimeError, match="too small"):
        FrozenMaxPool2d(3)(torch.zeros(1, 1, 2, 2))


def test_names_and_kinds_stay() -> None:
    network = MODELS["mcmahan_cnn"]((1, 8, 8), 3)
    before = list(network.state_dict())
    kinds = [type(module).__name__ for module in with_frozen_pools(network).modules()]
    assert list(network.state_dict()) == before
    assert kinds.count("FrozenMaxPool2d") == 2
    assert kinds.count("MaxPool2d") == 0


def test_the_users_module_keeps_its_own_layers() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3))
    x = torch.randn(4, 1, 8, 8)
    model = Model(adapt(module, head="3", maps="1", example=x))
    params, buffers = model.init()
    exported = model.module(params, buffers)
    assert [type(m) for m in exported.modules() if isinstance(m, nn.MaxPool2d)] == [nn.MaxPool2d]
    assert type(module[1]) is nn.MaxPool2d
    assert torch.equal(model.reference(params, buffers, x).logits, exported(x))
    assert torch.equal(model.maps(params, buffers, x), module[:2](x))
