"""What stands around a network, by hand: fused maps, heads of another kind, graphs and messages; what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from accord.errors import DataError
from accord.models import MODELS
from accord.models.around import AROUND, relations
from accord.models.around import attention as attention_of
from accord.models.around.attention import attend, draw
from accord.models.around.fusion import Fused, fuse
from accord.models.around.graph import adjacency, lowrank, official, ridge, standardise, unit
from accord.models.around.heads import ProjectedHead, UnitHead, projected_head, unit_head
from accord.models.around.relations import Passing, Related, keep_strongest, shuffled

T = torch.tensor


def small() -> Any:
    torch.manual_seed(0)
    return MODELS["mlp"]((4,), 3, hidden=(5,))


def test_every_kind_is_known_by_its_name() -> None:
    assert set(AROUND) == {"fusion", "relations", "unit_head", "projected_head"}


def test_maps_fused_by_hand() -> None:
    local, received = T([[[[1.0]], [[2.0]]]]), T([[[[5.0]], [[10.0]]]])
    assert fuse({"lambda": T(0.25)}, local, received).flatten().tolist() == [2.0, 4.0]
    assert fuse({"lambda": T([0.0, 1.0])}, local, received).flatten().tolist() == [1.0, 10.0]
    weight, bias = T([[1.0, 0.0, 0.0, 2.0], [0.0, 3.0, 1.0, 0.0]]), T([100.0, 200.0])  # of local, then of received
    assert fuse({"weight": weight, "bias": bias}, local, received).flatten().tolist() == [121.0, 211.0]


def test_a_fusion_knows_its_settings_and_is_made_blank_from_them() -> None:
    shapes = {"conv": {"bias": (2,), "weight": (2, 4)}, "multi": {"lambda": (2,)}, "single": {"lambda": ()}}
    for operator, wanted in shapes.items():
        for received in (True, False):
            network = small()
            made = Fused.blank(network, operator, 2, received)
            assert {name: tuple(t.shape) for name, t in made.fusion.items()} == wanted
            assert not any(t.any() or t.requires_grad for t in made.fusion.values())
            assert made.network is network
            assert (made.received is not None) == received
            assert made.received is not network
            channels = 1 if operator == "single" else 2
            assert made.settings() == {"operator": operator, "channels": channels, "received": received}
    Fused.blank(small(), "multi", 1, False)
    for operator, channels in (("sum", 2), ("conv", 0), ("conv", 2.0), ("conv", True)):
        wrong: Any = channels
        with pytest.raises(DataError, match="of channels, at least one, by one of conv, multi, single"):
            Fused.blank(small(), operator, wrong, False)


def test_a_unit_head_gives_cosines() -> None:
    head = UnitHead(T([[1.0, 0.0], [0.6, 0.8]]))
    assert head.in_features == 2
    assert head(T([[3.0, 4.0], [0.0, 2.0]])).flatten().tolist() == pytest.approx([0.6, 1.0, 0.0, 0.8])
    short = head(T([[5e-5, 0.0]]))  # half of the shortest that is stretched
    assert short.flatten().tolist() == pytest.approx([0.5, 0.3])


def test_heads_take_the_place_of_a_linear_layer() -> None:
    network = small()
    assert unit_head(network, "head") is network
    assert isinstance(network.head, UnitHead)
    assert network.head.weight.shape == (3, 5)
    assert not network.head.weight.any()
    network = small().double()
    assert projected_head(network, "head", 7) is network
    assert isinstance(network.head, ProjectedHead)
    shapes = {name: tuple(t.shape) for name, t in network.head.named_parameters()}
    assert shapes == {
        "projector.0.weight": (5, 5),
        "projector.0.bias": (5,),
        "projector.2.weight": (7, 5),
        "projector.2.bias": (7,),
        "head.weight": (3, 7),
        "head.bias": (3,),
    }
    assert network.head.head.weight.dtype == torch.float64
    assert network.head.settings() == {"width": 7}
    within = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3)))
    unit_head(within, "0.1")
    assert isinstance(within[0][1], UnitHead)
    assert isinstance(within[0][0], nn.Linear)


@pytest.mark.parametrize("at", ["", "neck", "nowhere"])
def test_heads_that_are_no_linear_layer_are_refused(at: str) -> None:
    for put in (unit_head, lambda network, at: projected_head(network, at, 2)):
        with pytest.raises(DataError, match=f"should be a linear layer called '{at}', and is none"):
            put(small(), at)
    lone = nn.Linear(2, 2)  # its own name is empty
    for put in (unit_head, lambda network, at: projected_head(network, at, 2)):
        with pytest.raises(DataError, match="and is none"):
            put(lone, "")


def test_a_projection_is_at_least_one_wide() -> None:
    projected_head(small(), "head", 1)
    for width in (0, -1, 2.0, True):
        wrong: Any = width
        with pytest.raises(DataError, match="a whole number above 0"):
            projected_head(small(), "head", wrong)


def test_rows_are_centred_and_of_nearly_unit_length() -> None:
    assert unit(T([[3.0, 4.0]]), 5.0).tolist() == [[pytest.approx(0.3), pytest.approx(0.4)]]
    # centred: -2, 2, of length sqrt(8)
    root = math.sqrt(8)
    assert standardise(T([[1.0, 5.0]]), 1.0)[0].tolist() == pytest.approx([-2 / (root + 1), 2 / (root + 1)])
    assert standardise(T([[7.0, 7.0]]), 0.1).tolist() == [[0.0, 0.0]]


def test_two_samples_by_hand() -> None:
    """P = [[1, p], [p, 1]], and B is whatever one number of the first tells of the second."""
    p, lam = 0.5, 0.1
    matrix = T([[1.0, p], [p, 1.0]], dtype=torch.float64)
    # H = (P + lam I)^-1 is proportional to [[1.1, -p], [-p, 1.1]]
    assert torch.allclose(official(matrix, lam), T([[0.0, p / 1.1], [p / 1.1, 0.0]], dtype=torch.float64))
    # P'P = [[1.25, 1], [1, 1.25]], and 2 lam more on the diagonal
    assert torch.allclose(ridge(matrix, lam), T([[0.0, 1 / 1.45], [1 / 1.45, 0.0]], dtype=torch.float64))
    found = lowrank(matrix, lam)
    assert found.diagonal().tolist() == [0.0, 0.0]
    # B = b off the diagonal and Phi = phi I: 1.25 - 2 b + 1.25 b^2 + 2 lam phi b^2 is least at 1 / (1.25 + 2 lam phi)
    phi = 1.0
    for _ in range(5):
        b = 1 / (1.25 + 2 * lam * phi)
        phi = 1 / b
    assert found[0, 1].item() == pytest.approx(b, rel=1e-6)


def test_a_graph_leaves_out_whoever_does_not_count() -> None:
    features = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    mask = T([True, True, False, True])
    for mode in ("official", "ridge", "lowrank"):
        way: Any = mode
        graph = adjacency(features, mask, way, 0.1, 0.01)
        assert graph.dtype == torch.float64
        assert torch.equal(graph, graph.mT)
        assert not graph.diagonal().any()
        assert not graph[2].any()
        assert (graph >= 0).all()
        others = adjacency(features[mask], T([True] * 3), way, 0.1, 0.01)
        assert torch.allclose(graph[mask][:, mask], others)
    assert not adjacency(torch.full((2, 3), math.nan), T([True, True]), "official", 0.1, 0.01).any()


def test_the_strongest_neighbours() -> None:
    graph = T([[0.0, 3.0, 1.0, 2.0], [5.0, 0.0, 4.0, 0.0]])
    assert keep_strongest(graph, 1).tolist() == [[0, 3, 0, 0], [5, 0, 0, 0]]
    assert keep_strongest(graph, 2).tolist() == [[0, 3, 0, 2], [5, 0, 4, 0]]
    assert keep_strongest(graph, 4) is graph
    assert keep_strongest(graph, 9) is graph


def test_first_weights_of_messages() -> None:
    size = 40
    dot = draw(np.random.default_rng(0), "dot", 2, 5, size)
    assert list(dot) == [f"{hop}.{name}" for hop in (0, 1) for name in ("receive", "send", "value")]
    gat = draw(np.random.default_rng(0), "gat", 2, 2, size)
    assert set(gat) == {f"{hop}.{head}.{n}" for hop in (0, 1) for head in (0, 1) for n in ("value", "receive", "send")}
    drawn = torch.cat([t.flatten() for t in dot.values()])
    values = torch.cat([t.flatten() for name, t in gat.items() if name.endswith("value")])
    for found, bound in ((drawn, 1 / math.sqrt(size)), (values, math.sqrt(3 / size))):
        assert 0.99 * bound < float(found.max()) <= bound
        assert -bound <= float(found.min()) < -0.99 * bound
    assert all(t.shape == (size, size) for t in dot.values())
    assert gat["0.0.send"].shape == (size,)
    one = [draw(np.random.default_rng(seed), "gat", 1, 1, 1)["0.0.send"].abs().item() for seed in range(300)]
    assert 0.98 * math.sqrt(2) < max(one) <= math.sqrt(2)  # Xavier's of 2 inputs and 1 output: sqrt(6 / 3)


def test_messages_by_hand() -> None:
    """Three nodes of one feature: the first has two neighbours, the second one, the third none."""
    nodes, graph = T([[1.0], [2.0], [4.0]]), T([[0.0, 1.0, 3.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    weights = {"0.receive": T([[1.0]]), "0.send": T([[0.0]]), "0.value": T([[10.0]])}  # all scores are 0
    plain = attend(weights, 0, nodes, graph, edge_weight=False, residual=False)
    assert plain.flatten().tolist() == pytest.approx([30.0, 10.0, 4.0])
    weighted = attend(weights, 0, nodes, graph, edge_weight=True, residual=False)
    assert weighted.flatten().tolist() == pytest.approx([(20 + 3 * 40) / 4, 10.0, 4.0])
    added = attend(weights, 0, nodes, graph, edge_weight=True, residual=True)
    assert added.flatten().tolist() == pytest.approx([36.0, 12.0, 4.0])
    weights["0.send"] = T([[0.5]])  # scores of the first: 1 and 2
    share = 1 / (1 + math.e)
    scored = attend(weights, 0, nodes, graph, edge_weight=False, residual=False)
    assert scored[0].item() == pytest.approx(20 * share + 40 * (1 - share))
    wide = {f"0.{name}": torch.eye(4) for name in ("receive", "send", "value")}
    two = T([[2.0, 0, 0, 0], [1.0, 0, 0, 0], [0, 0, 0, 0]])  # scores 1 and 0: 2 * 1 / sqrt(4)
    found = attend(wide, 0, two, T([[0.0, 1, 1], [0, 0, 0], [0, 0, 0]]), edge_weight=False, residual=False)
    assert found[0, 0].item() == pytest.approx(1 - share)


def test_messages_of_heads_by_hand() -> None:
    nodes, graph = T([[1.0], [2.0], [-4.0]]), T([[0.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    first = {"0.0.value": T([[1.0]]), "0.0.receive": T([0.0]), "0.0.send": T([0.0])}
    # the mean of 2 and -4 is -1, and ELU(-1) = e^-1 - 1
    elu = math.exp(-1) - 1
    found = attend(first, 0, nodes, graph, edge_weight=False, residual=False)
    assert found.flatten().tolist() == pytest.approx([elu, 2.0, -4.0])
    second = {"0.1.value": T([[-1.0]]), "0.1.receive": T([2.0]), "0.1.send": T([1.0])}
    # values -1, -2, 4; scores -2 - 2 and -2 + 4, the first of them times the slope: -0.4 and 2
    share = 1 / (1 + math.exp(2.4))
    other = -2 * share + 4 * (1 - share)
    assert attention_of.SLOPE == 0.1
    found = attend({**first, **second, "1.0.value": T([[9.0]])}, 0, nodes, graph, edge_weight=False, residual=True)
    assert found[0].item() == pytest.approx(1 + (elu + other) / 2)


def test_defaults_of_message_passing() -> None:
    assert Passing() == Passing("official", 0.1, 0.01, 1, True, 0, True, "dot", 2)


def test_samples_are_related_in_graphs_of_about_equal_size(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[Any]()

    def augment(self: Passing, weights: Any, features: Any, mask: Any) -> Any:
        assert mask.dtype == torch.bool
        assert mask.all()
        seen.append(len(features))
        return features * 2

    monkeypatch.setattr(Passing, "augment", augment)
    for count, size, sizes in ((10, 10, [10]), (10, 9, [5, 5]), (11, 5, [4, 4, 3]), (0, 4, [0])):
        seen.clear()
        plain = torch.arange(2.0 * count).view(count, 2)
        assert torch.equal(Passing().among({}, plain, size), plain * 2)
        assert seen == sizes
    order = shuffled(50)
    assert torch.equal(order, shuffled(50))
    assert sorted(order.tolist()) == list(range(50)) != order.tolist()


def test_messages_are_passed_hop_by_hop_among_the_strongest() -> None:
    features = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)).double()
    everyone = torch.ones(5, dtype=torch.bool)
    weights = draw(np.random.default_rng(3), "dot", 2, 1, 3)
    graph = adjacency(features, everyone, "ridge", 0.3, 0.02)
    expected = features
    for hop in (0, 1):
        expected = attend(weights, hop, expected, keep_strongest(graph, 2), edge_weight=False, residual=True)
    passing = Passing("ridge", 0.3, 0.02, 2, edge_weight=False, top_k=2)
    assert torch.allclose(passing.augment(weights, features, everyone), expected)


def test_a_related_network_reads_what_its_samples_borrowed() -> None:
    network = small()
    made = Related.blank(network, 6, 5, hops=2, lam=1, top_k=3)
    assert made.settings() == {
        **{"size": 6, "features": 5, "graph": "official", "lam": 1, "eps": 0.01, "hops": 2},
        **{"edge_weight": True, "top_k": 3, "residual": True, "attention": "dot", "heads": 2},
    }
    assert {name: tuple(t.shape) for name, t in made.weights.items()} == {
        f"{hop}_{name}": (5, 5) for hop in (0, 1) for name in ("receive", "send", "value")
    }
    assert not any(t.any() or t.requires_grad for t in made.weights.values())
    x = torch.randn(4, 4)
    assert torch.allclose(made(x), network(x)), "messages of 0, and what there was stays"
    bare = Related.blank(network, 6, 5, residual=False)
    neighbours = adjacency(network.features(x), torch.ones(4, dtype=torch.bool), "official", 0.1, 0.01)
    assert neighbours.any(-1).all()
    assert torch.allclose(bare(x), network.head.bias.expand(4, 3)), "messages of 0 in its place"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"size": 0}, "whole numbers from 1 to 65536"),
        ({"size": 65537}, "whole numbers from 1 to 65536"),
        ({"features": True}, "whole numbers from 1 to 65536"),
        ({"hops": 0}, "whole numbers from 1 to 65536"),
        ({"heads": 2.0}, "whole numbers from 1 to 65536"),
        ({"hops": 1, "heads": 1, "features": 9460}, "1 hops over 9460 features is too large"),  # 3 * 9460^2 > 2^28
        ({"hops": 60000, "heads": 60000, "features": 1}, "too large"),
        ({"lam": -0.1}, "must be numbers"),
        ({"eps": "much"}, "must be numbers"),
        ({"top_k": -1}, "must be numbers"),
        ({"top_k": True}, "must be numbers"),
        ({"graph": "any"}, "graph one of official, ridge, lowrank"),
        ({"attention": "all"}, "must be one of dot, gat"),
    ],
)
def test_settings_of_message_passing_that_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        Related.blank(small(), **{"size": 4, "features": 5, **settings})


def test_settings_of_message_passing_at_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    Related.blank(small(), size=1 << 16, features=1, lam=0, eps=0, top_k=0)
    monkeypatch.setattr(relations, "LARGEST", 3 * 2 * 3 * 25)
    Related.blank(small(), size=1, features=5, hops=2, heads=3)
    monkeypatch.setattr(relations, "LARGEST", 3 * 2 * 3 * 25 - 1)
    with pytest.raises(DataError, match="too large"):
        Related.blank(small(), size=1, features=5, hops=2, heads=3)


def test_samples_are_related_in_one_fixed_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five samples in graphs of two at most; each finds its own place again."""
    graphs: list[list[float]] = []

    def augment(self: Passing, weights: Any, features: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        assert mask.tolist() == [True] * len(features)
        graphs.append(features[:, 0].tolist())
        return 10 * features

    monkeypatch.setattr(Passing, "augment", augment)
    plain = torch.arange(5.0).view(5, 1)
    assert torch.equal(Passing().among({}, plain, 2), 10 * plain)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(0)).tolist()
    assert order != sorted(order)
    assert graphs == [order[:2], order[2:4], order[4:]]
    graphs.clear()
    Passing().among({}, plain, 5)
    assert graphs == [order]
