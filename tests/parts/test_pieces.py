"""The small pieces methods are made of, on numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from accord.core.model import Model
from accord.core.optim import SGD
from accord.core.types import Batch
from accord.errors import ConfigError
from accord.models import adapt
from accord.models.around.heads import exchange
from accord.models.mlp import mlp as network_of_layers
from accord.models.network import Network
from accord.parts.heads import UnitHead, orthonormal_rows
from accord.parts.lookup import gathered, in_chunks
from accord.parts.losses import batch_gradient, contrast, cross_entropy
from accord.parts.mlp import init_mlp, mlp
from accord.parts.phases import Gated
from accord.parts.projection import Projecting
from accord.parts.samples import share_of, soft_labels
from accord.problems import PROBLEMS


def numbers(*values: float) -> Tensor:
    return torch.tensor(values)


def test_the_network_bends_between_layers_only() -> None:
    tree = {
        "0.weight": torch.tensor([[1.0, 0.0], [0.0, -1.0]]),
        "0.bias": numbers(1.0, 0.0),
        "1.weight": torch.tensor([[1.0, 2.0]]),
        "1.bias": numbers(-5.0),
    }
    x = torch.tensor([[2.0, 3.0], [-4.0, -1.0]])
    # (2, 3): (3, -3) bends to (3, 0), 3 - 5; (-4, -1): (-3, 1) bends to (0, 1), 2 - 5. The last layer does not bend.
    assert mlp(tree, x).tolist() == [[-2.0], [-3.0]]
    one = {"0.weight": torch.tensor([[-1.0]]), "0.bias": numbers(0.0)}
    assert mlp(one, torch.tensor([[2.0]])).tolist() == [[-2.0]]


def test_the_network_is_drawn_as_torch_draws_layers() -> None:
    tree = init_mlp(np.random.default_rng(0), (400, 100, 4))
    assert {name: tuple(t.shape) for name, t in tree.items()} == {
        "0.weight": (100, 400),
        "0.bias": (100,),
        "1.weight": (4, 100),
        "1.bias": (4,),
    }
    for name, bound in (("0.weight", 0.05), ("0.bias", 0.05), ("1.weight", 0.1), ("1.bias", 0.1)):
        assert float(tree[name].abs().max()) <= bound  # 1 / sqrt(inputs)
        assert tree[name].dtype == torch.get_default_dtype()
    assert float(tree["0.weight"].min()) < -0.049
    assert float(tree["0.weight"].max()) > 0.049


def test_labels_as_shares() -> None:
    shares = soft_labels(torch.tensor([2, 0]), 3, torch.zeros(1, dtype=torch.float32))
    assert shares.tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    assert shares.dtype == torch.float32
    mixed = torch.tensor([[0.25, 0.75]])
    assert soft_labels(mixed, 2, mixed) is mixed


def test_positions_from_uniform_draws() -> None:
    draws = numbers(0.0, 0.19, 0.2, 0.99, 1.0)
    assert share_of(draws, 5).tolist() == [0, 0, 1, 4, 4]
    assert share_of(draws, torch.tensor([5, 5, 10, 2, 3])).tolist() == [0, 0, 2, 1, 2]


def test_contrast() -> None:
    """Cosines 0.6 to the positive and 0.8 to the negative, tau 0.5: log(1 + e^{0.4})."""
    anchor, positive, negative = (torch.tensor([row]) for row in ([2.0, 0.0], [3.0, 4.0], [8.0, 6.0]))
    assert contrast(anchor, positive, negative, 0.5).tolist() == pytest.approx([math.log1p(math.exp(0.4))])
    assert contrast(anchor, negative, positive, 0.5).tolist() == pytest.approx([math.log1p(math.exp(-0.4))])


def test_cross_entropy_of_classes_and_of_shares() -> None:
    logits = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]])  # (1/4, 3/4) and (1/2, 1/2)
    assert cross_entropy(logits, torch.tensor([0, 1])).tolist() == pytest.approx([math.log(4), math.log(2)])
    soft = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    wanted = [0.5 * math.log(4) + 0.5 * math.log(4 / 3), math.log(2)]
    assert cross_entropy(logits, soft).tolist() == pytest.approx(wanted)


def test_rows_made_orthonormal_keep_their_side() -> None:
    rows = orthonormal_rows(torch.tensor([[-3.0, 0.0, 4.0], [-3.0, -2.0, 4.0]]))
    assert torch.allclose(rows, torch.tensor([[-0.6, 0.0, 0.8], [0.0, -1.0, 0.0]]))
    with pytest.raises(ConfigError, match="linearly dependent"):
        orthonormal_rows(torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]))
    with pytest.raises(ConfigError, match="linearly dependent"):
        orthonormal_rows(torch.zeros(2, 3))


def test_a_unit_head_says_cosines() -> None:
    head = UnitHead(torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    assert head.in_features == 3
    said = head(torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 9.0]]))
    assert torch.allclose(said, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))


@pytest.mark.parametrize(("size", "wanted"), [(3, [3, 3, 1]), (7, [7]), (9, [7])])
def test_samples_in_chunks(size: int, wanted: list[int]) -> None:
    x = torch.arange(14.0).view(7, 2)
    seen = []

    def twice(piece: Tensor) -> Tensor:
        seen.append(len(piece))
        return 2 * piece[:, :1]

    assert in_chunks(twice, x, size).tolist() == [[0.0], [4.0], [8.0], [12.0], [16.0], [20.0], [24.0]]
    assert seen == wanted


def test_what_is_stored_is_looked_up_and_a_mixed_batch_computed() -> None:
    stored, x = torch.tensor([[10.0], [11.0], [12.0]]), torch.tensor([[5.0], [6.0]], requires_grad=True)
    batch = Batch(x, torch.tensor([0, 0]), torch.ones(2), torch.tensor([2, 0]), {})
    assert gathered(stored, batch, torch.neg).tolist() == [[12.0], [10.0]]
    for given, index in ((None, batch.index), (stored, torch.tensor([], dtype=torch.long))):
        new = gathered(given, batch._replace(index=index), torch.neg)
        assert new.tolist() == [[-5.0], [-6.0]]
        assert not new.requires_grad


def test_a_group_moves_while_its_gate_is_open() -> None:
    """Momentum 0.5, weight decay 1, rate 0.1; clipped apart, to length 1."""
    optimizer = Gated(SGD(momentum=0.5, weight_decay=1.0), frozenset({"head"}), clip=1.0)
    assert optimizer.weight_decay == 1.0
    params = {"body": numbers(0.0), "head": numbers(0.0)}
    state = optimizer.init(params)
    assert {name: float(gate) for name, gate in state["gate"].items()} == {"apart": 1.0, "rest": 1.0}
    state["gate"]["rest"].fill_(0.0)
    grads = {"body": numbers(8.0), "head": numbers(0.5)}
    optimizer.update(params, grads, state, torch.tensor(0.1))
    assert params["body"].tolist() == [0.0]  # its gate is closed
    assert params["head"].tolist() == pytest.approx([-0.05])  # not clipped with the body's 8
    state["gate"]["rest"].fill_(1.0)
    state["gate"]["apart"].fill_(0.0)
    optimizer.update(params, grads, state, torch.tensor(0.1))
    assert params["body"].tolist() == pytest.approx([-0.1])  # clipped to 1, and no momentum of the step before
    assert params["head"].tolist() == pytest.approx([-0.05])
    state["gate"]["apart"].fill_(1.0)
    optimizer.update(params, grads, state, torch.tensor(0.1))
    # head: 0.5 * 0.5 + (0.5 - 0.05) = 0.7; body: 0.5 * 1 + (1 - 0.1) = 1.4
    assert params["head"].tolist() == pytest.approx([-0.05 - 0.07])
    assert params["body"].tolist() == pytest.approx([-0.1 - 0.14])
    whole = Gated(SGD(), clip=0.0)  # nothing apart, nothing clipped
    state = whole.init(params)
    whole.update(params, {"body": numbers(1.0), "head": numbers(2.0)}, state, torch.tensor(1.0))
    assert params["head"].tolist() == pytest.approx([-2.12])


def test_a_projection_stands_between_the_body_and_its_classifier() -> None:
    body = network_of_layers((2,), 3, hidden=(4,))
    exchange(body, body.head_name, nn.Identity())
    network = Projecting(body, features=4, width=5, classes=3)
    x = torch.arange(4.0).view(2, 2)
    projections = network.projector(body.features(x))
    assert (network.num_features, projections.shape, network(x).shape) == (5, (2, 5), (2, 3))
    assert torch.equal(network.features(x), projections)
    assert torch.equal(network(x), network.head(projections))
    assert torch.equal(network.logits_and_features(x)[0], network(x))
    assert torch.equal(network.as_given()(x), network(x))


def test_a_parameter_that_no_sample_reaches_has_the_slope_zero() -> None:
    class Idle(nn.Module):
        head_name, map_shape, num_features = "head", None, 2

        def __init__(self) -> None:
            super().__init__()
            self.head, self.idle = nn.Linear(2, 2, bias=False), nn.Parameter(torch.ones(3))

        def logits_and_features(self, x: Tensor, fuse: object = None) -> tuple[Tensor, Tensor]:
            return self.head(x), x

    model = Model(Idle())
    params = {"head.weight": torch.zeros(2, 2), "idle": torch.ones(3)}
    batch = Batch(torch.tensor([[1.0, 2.0], [5.0, 5.0]]), torch.tensor([0, 1]), numbers(1.0, 0.0), torch.arange(2), {})
    slopes, out = batch_gradient(model, params, {}, batch)
    # the second sample weighs nothing; of the first, (softmax - label) x with softmax (1/2, 1/2)
    assert slopes["head.weight"].tolist() == [[-0.5, -1.0], [0.5, 1.0]]
    assert slopes["idle"].tolist() == [0.0, 0.0, 0.0]
    assert out.features.tolist() == batch.x.tolist()
    assert not out.logits.requires_grad


def test_a_projection_fuses_the_maps_of_its_body_and_gives_away_copies() -> None:
    maps, neck = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), nn.Sequential(nn.Flatten(), nn.Linear(8, 4), nn.ReLU())
    body = Network(maps, neck, nn.Identity(), (2, 2, 2))
    network = Projecting(body, features=4, width=5, classes=3)
    x = torch.arange(32.0).view(2, 1, 4, 4) / 32
    assert network.map_shape == (2, 2, 2)
    assert torch.equal(network.feature_maps(x), maps(x))
    fused = network.logits_and_features(x, lambda own: 3 * own)[0]
    assert torch.allclose(fused, network.head(network.projector(neck(3 * maps(x)))))
    names = {name: value.data_ptr() for name, value in network.named_parameters()}
    given = network.as_given()
    assert {name: value.data_ptr() for name, value in network.named_parameters()} == names
    assert not {value.data_ptr() for value in given.parameters()} & set(names.values())
    assert isinstance(body.head, nn.Identity)


def test_slopes_are_those_of_the_problems_loss() -> None:
    """Regression: d/dw of (w x - y)^2 at w = 1, x = 2, y = 5 is 2 * 2 * (2 - 5)."""
    layer = adapt(nn.Sequential(nn.Linear(1, 1)), head="0", example=torch.zeros(1, 1))
    model = Model(layer, problem=PROBLEMS["regression"])
    params = {name: torch.ones_like(t) if t.dim() == 2 else torch.zeros_like(t) for name, t in model.init()[0].items()}
    batch = Batch(torch.tensor([[2.0]]), torch.tensor([[5.0]]), torch.ones(1), torch.arange(1), {})
    slopes, _ = batch_gradient(model, params, {}, batch)
    assert slopes["module.0.weight"].tolist() == [[-12.0]]
