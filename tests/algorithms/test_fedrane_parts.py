"""FedRANE's parts: graph, message passing, contrast and frozen head against the formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from accord.algorithms.fedrane.relations import Relations, discrimination
from accord.core.model import Model, Out
from accord.core.types import Batch
from accord.core.view import View
from accord.errors import ConfigError
from accord.models import adapt
from accord.models.around import graph as graphs
from accord.models.around.attention import attend, draw
from accord.models.around.graph import adjacency
from accord.parts.heads import orthonormal_head, orthonormal_rows
from support.federation import tiny_model
from support.fedrane import (
    EPS,
    LAM,
    augment_reference,
    contrast_reference,
    graph_reference,
    pearson_reference,
)

# the graph --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["official", "ridge", "lowrank"])
def test_graph(float64: None, mode: Any) -> None:
    z = torch.tensor(np.random.default_rng(0).normal(size=(9, 6)))
    a = adjacency(z, torch.ones(9, dtype=torch.bool), mode, LAM, EPS)
    np.testing.assert_allclose(a.numpy(), graph_reference(z, mode), atol=1e-9)
    assert torch.equal(a, a.mT)
    assert (a >= 0).all()
    assert not a.diagonal().any()


def test_official_graph_of_two_samples_by_hand() -> None:
    # P = [[1, r], [r, 1]] (1 / (1 + eps / |c|)^2): H is proportional to [[d, -r], [-r, d]], so B_12 = r / d.
    z = torch.tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]])  # centred: (-1, 0, 1), (-1, 1, 0): correlation 1/2
    shrink = (math.sqrt(2) / (math.sqrt(2) + EPS)) ** 2
    a = adjacency(z, torch.ones(2, dtype=torch.bool), "official", 0.1, EPS)
    expected = 0.5 * shrink / (shrink + 0.1)
    np.testing.assert_allclose(a.numpy(), [[0, expected], [expected, 0]], rtol=1e-9)


def test_lowrank_weights_are_a_constrained_minimum_and_the_objective_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    z = np.random.default_rng(1).normal(size=(12, 5)) + 2 * np.eye(3)[np.arange(12) % 3] @ np.ones((3, 5)).cumsum(1)
    p = torch.tensor(pearson_reference(z))
    objectives = []
    for iterations in (1, 2, 5, 20, 40):
        monkeypatch.setattr(graphs, "ITERATIONS", iterations)
        b = graphs.lowrank(p, LAM)
        assert not b.diagonal().any()
        fit = 0.5 * (p - p @ b).pow(2).sum()
        objectives.append(float(fit + 2 * LAM * torch.linalg.matrix_norm(b, "nuc")))
    assert objectives == sorted(objectives, reverse=True)
    monkeypatch.setattr(graphs, "ITERATIONS", 1)
    torch.testing.assert_close(graphs.lowrank(p, LAM), graphs.ridge(p, LAM), rtol=1e-9, atol=1e-12)
    # Stationary but for the diagonal: P^T P B - P^T P + 2 lam Phi B has no other entries for the Phi it was made with.
    before = graphs.lowrank(p, LAM)
    values, vectors = torch.linalg.eigh(before @ before.mT + 1e-8 * torch.eye(12, dtype=p.dtype))
    phi = vectors @ torch.diag(values.rsqrt()) @ vectors.mT
    monkeypatch.setattr(graphs, "ITERATIONS", 2)
    b = graphs.lowrank(p, LAM)
    gradient = p.mT @ (p @ b - p) + 2 * LAM * phi @ b
    assert float((gradient - torch.diag(gradient.diagonal())).abs().max()) < 1e-9


@pytest.mark.parametrize("mode", ["official", "ridge", "lowrank"])
def test_constant_features_have_no_neighbours(mode: Any) -> None:
    z = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    z[2] = 0.7
    a = adjacency(z, torch.ones(5, dtype=torch.bool), mode, LAM, EPS)
    assert not a[2].any()
    assert torch.isfinite(a).all()


@pytest.mark.parametrize("mode", ["official", "ridge", "lowrank"])
def test_graphs_side_by_side_equal_single_ones(mode: Any) -> None:
    z = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(3, 6, dtype=torch.bool)
    mask[1, 4:] = False
    together = adjacency(z, mask, mode, LAM, EPS)
    for one in range(3):
        count = int(mask[one].sum())
        alone = adjacency(z[one, :count], mask[one, :count], mode, LAM, EPS)
        torch.testing.assert_close(together[one, :count, :count], alone, rtol=1e-7, atol=1e-9)
        assert not together[one, count:].any()


# message passing and contrast -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "part",
    [
        Relations(),
        Relations(edge_weight=False),
        Relations(residual=False, top_k=2),
        Relations(graph="lowrank", hops=2),
        Relations(graph="ridge", top_k=3, edge_weight=False),
        Relations(attention="gat", edge_weight=False, residual=False),  # the published code's
        Relations(attention="gat", heads=3, hops=2, top_k=3),
    ],
)
def test_augmentation(float64: None, part: Relations) -> None:
    rng = np.random.default_rng(2)
    z = torch.tensor(rng.normal(size=(7, 4)))
    first = draw(rng, part.attention, part.hops, part.heads, 4)
    weights = {name: torch.tensor(rng.normal(size=tensor.shape)) for name, tensor in first.items()}
    everyone = torch.ones(7, dtype=torch.bool)
    expected = augment_reference(z, weights, part)
    torch.testing.assert_close(part.augment(weights, z, everyone), expected, rtol=1e-8, atol=1e-9)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    torch.testing.assert_close(part.augment(weights, z[order], everyone), expected[order], rtol=1e-8, atol=1e-9)


def test_gat_by_hand(float64: None) -> None:
    """Two samples, one feature, W = 2, a = b = 1: the only neighbour counts whole, and ELU leaves 6 as it is."""
    weights = {"0.0.value": torch.tensor([[2.0]]), "0.0.receive": torch.ones(1), "0.0.send": torch.ones(1)}
    graph = torch.tensor([[0.0, 0.3], [0.3, 0.0]])
    plain = {"edge_weight": False, "residual": False}
    found = attend(weights, 0, torch.tensor([[-1.0], [3.0]]), graph, **plain)
    assert found.flatten().tolist() == pytest.approx([6.0, math.exp(-2) - 1])
    # Three samples: to the first the scores of 1 and -4 are 2 + 2 and LeakyReLU(2 - 8) = -0.6.
    graph = torch.ones(3, 3) - torch.eye(3)
    found = attend(weights, 0, torch.tensor([[1.0], [1.0], [-4.0]]), graph, **plain)
    message = (2 * math.exp(4) - 8 * math.exp(-0.6)) / (math.exp(4) + math.exp(-0.6))
    assert float(found[0]) == pytest.approx(message)


def test_gat_starts_as_xavier_has_it() -> None:
    tree = draw(np.random.default_rng(0), "gat", 1, 2, 50)
    assert set(tree) == {f"0.{head}.{name}" for head in (0, 1) for name in ("receive", "send", "value")}
    assert float(tree["0.1.value"].abs().max()) == pytest.approx(math.sqrt(6 / 100), rel=0.01)
    assert float(tree["0.0.send"].abs().max()) == pytest.approx(math.sqrt(6 / 101), rel=0.1)
    assert float(tree["0.0.send"].abs().max()) <= math.sqrt(6 / 101)


@pytest.mark.parametrize("residual", [True, False])
def test_a_sample_alone_stays_as_it_is(residual: bool) -> None:
    part = Relations(residual=residual)
    weights = {f"0.{n}": torch.randn(4, 4) for n in ("receive", "send", "value")}
    z = torch.randn(3, 4)
    assert torch.equal(part.augment(weights, z[:1], torch.ones(1, dtype=torch.bool)), z[:1])
    padded = part.augment(weights, z, torch.tensor([True, False, False]))
    assert torch.equal(padded[0], z[0])


@pytest.mark.parametrize("similarity", ["pearson", "cosine"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_contrast(float64: None, similarity: Any, symmetric: bool) -> None:
    rng = np.random.default_rng(3)
    z, after = torch.tensor(rng.normal(size=(5, 4))), torch.tensor(rng.normal(size=(5, 4)))
    found = discrimination(z, after, torch.ones(5), tau=0.8, similarity=similarity, symmetric=symmetric, eps=EPS)
    torch.testing.assert_close(found, contrast_reference(z, after, 0.8, similarity, symmetric))


def test_contrast_by_hand(float64: None) -> None:
    # Two orthogonal unit samples, unchanged: the pair has similarity 1, the two others 0.
    z = torch.eye(2)
    found = discrimination(z, z, torch.ones(2), tau=0.5, similarity="cosine", symmetric=True, eps=0.0)
    assert float(found) == pytest.approx(math.log((math.e**2 + 2) / math.e**2))
    alone = discrimination(z[:1], z[:1], torch.ones(1), tau=0.5, similarity="cosine", symmetric=True, eps=0.0)
    assert float(alone) == pytest.approx(0, abs=1e-12)


def test_padding_changes_nothing(float64: None) -> None:
    rng = np.random.default_rng(4)
    z = torch.tensor(rng.normal(size=(6, 4)))
    weight = torch.tensor([1.0, 1, 1, 1, 0, 0])
    part = Relations(top_k=2)
    weights = {f"0.{n}": torch.tensor(rng.normal(size=(4, 4))) for n in ("receive", "send", "value")}
    whole = part.augment(weights, z, weight > 0)
    short = part.augment(weights, z[:4], torch.ones(4, dtype=torch.bool))
    torch.testing.assert_close(whole[:4], short)
    options: Any = {"tau": 0.8, "similarity": "pearson", "symmetric": True, "eps": EPS}
    torch.testing.assert_close(
        discrimination(z, whole, weight, **options), discrimination(z[:4], short, torch.ones(4), **options)
    )


def test_gradients_stay_finite_where_features_are_dead() -> None:
    z = torch.zeros(4, 3, requires_grad=True)
    part = Relations()
    weights = {f"0.{n}": torch.randn(3, 3) for n in ("receive", "send", "value")}
    after = part.augment(weights, z, torch.ones(4, dtype=torch.bool))
    loss = discrimination(z, after, torch.ones(4), tau=0.8, similarity="pearson", symmetric=True, eps=EPS)
    assert torch.isfinite(torch.autograd.grad(loss, z)[0]).all()


# the frozen head --------------------------------------------------------------------------------------------------


def test_orthonormal_rows_are_gram_schmidt() -> None:
    w = np.random.default_rng(5).normal(size=(3, 6))
    rows: list[Any] = []
    for row in w:
        rest = row - sum((row @ q) * q for q in rows)
        rows.append(rest / np.linalg.norm(rest))
    np.testing.assert_allclose(orthonormal_rows(torch.tensor(w)).numpy(), np.array(rows), atol=1e-12)


def test_frozen_head_reads_unit_features(float64: None) -> None:
    model = tiny_model()
    unit = orthonormal_head(model)
    z = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    params = unit.init()[0]
    expected = torch.stack([params["head.weight"] @ row / row.norm() for row in z])
    torch.testing.assert_close(unit.head(params, z), expected)
    torch.testing.assert_close(unit.head(params, 7 * z), expected)
    assert torch.isfinite(unit.head(params, torch.zeros(1, 5))).all()


def test_a_feature_for_every_class_is_enough_for_an_orthonormal_head() -> None:
    assert orthonormal_head(tiny_model(hidden=(3,))).init()[0]["head.weight"].shape == (3, 3)
    with pytest.raises(ConfigError, match="gives 2 features for 3 classes"):
        orthonormal_head(tiny_model(hidden=(2,)))


def test_heads_that_cannot_be_made_orthonormal() -> None:
    zero = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, 3))
    nn.init.zeros_(zero[2].weight)
    with pytest.raises(ConfigError, match="linearly dependent"):
        orthonormal_head(Model(adapt(zero, "2")))
    deep = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Sequential(nn.Linear(8, 3)))
    with pytest.raises(ConfigError, match="is a Sequential"):
        orthonormal_head(Model(adapt(deep, "2", example=torch.zeros(2, 64))))


# a step -----------------------------------------------------------------------------------------------------------


def test_a_step_leaves_padding_out_of_graph_and_contrast(float64: None) -> None:
    """Three samples, alone and with two rows of weight 0 behind them: the same outputs and the same term."""
    model, part = tiny_model(), Relations(contrast=0.6)
    params, buffers = model.init()
    relations = draw(np.random.default_rng(0), "dot", 1, 2, 5)
    x = torch.tensor(np.random.default_rng(1).normal(size=(5, 1, 8, 8)))
    found = []
    for rows in (3, 5):
        weight = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])[:rows]
        batch = Batch(x[:rows], torch.zeros(rows, dtype=torch.long), weight, torch.arange(rows), {})
        carry: Any = {part.name: {}, "buffers": buffers}
        trees = {"model": params, "relations": {n: t.double() for n, t in relations.items()}}
        out = part.forward(model, None, carry, trees, batch)  # type: ignore[arg-type]
        term = part.loss(View(model, None, carry, trees, out, batch))  # type: ignore[arg-type]
        assert term is not None
        assert carry == {part.name: {}, "buffers": buffers}, "nothing is left behind"
        found.append((out.logits[:3], term.value))
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("similarity", ["pearson", "cosine"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_term_has_the_parts_own_settings(similarity: Any, symmetric: bool, float64: None) -> None:
    """Weight 1/2, tau 0.3, eps 1: none of them as they are left."""
    rng = np.random.default_rng(4)
    before, after = (torch.tensor(rng.normal(size=(4, 5))) for _ in range(2))
    part = Relations(eps=1.0, contrast=0.5, tau=0.3, similarity=similarity, symmetric=symmetric)
    batch = Batch(before, torch.zeros(4), torch.ones(4), torch.arange(4), {})
    view = View(None, None, {part.name: {"plain": before}}, {}, Out(after, after), batch)  # type: ignore[arg-type]
    term = part.loss(view)
    rows = torch.cat([before, after])
    rows = rows - rows.mean(1, keepdim=True) if similarity == "pearson" else rows
    rows = rows / (rows.norm(dim=1, keepdim=True) + 1.0)
    scores = (rows @ rows.T / 0.3).exp()
    losses = [-torch.log(scores[i, (i + 4) % 8] / (scores[i].sum() - scores[i, i])) for i in range(8)]
    wanted = torch.stack(losses[: 8 if symmetric else 4]).mean()
    assert term is not None
    torch.testing.assert_close(term.value, 0.5 * wanted)
