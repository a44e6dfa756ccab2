"""t-SNE against its definition: affinities by bisection in plain Python, the gradient by autograd, clusters by eye."""

from __future__ import annotations

import base64
import math

import pytest
import torch
from torch import Tensor

from accord.measures import tsne as module
from accord.measures.feature_map import spread_rows
from accord.measures.tsne import affinities, gradient, packed, principal, tsne, unpacked


def drawn(count: int, size: int, seed: int = 0) -> Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def conditional(points: Tensor, i: int, width: float) -> list[float]:
    """p(j | i) of a Gaussian with 1 / (2 sigma^2) = width."""
    weights = [
        0.0 if j == i else math.exp(-width * sum((a - b) ** 2 for a, b in zip(points[i], points[j], strict=True)))
        for j in range(len(points))
    ]
    return [weight / sum(weights) for weight in weights]


def test_neighbourhoods_have_the_perplexity_asked_for() -> None:
    points, perplexity = drawn(7, 3), 3.0
    rows = points.tolist()
    found = []
    for i in range(len(rows)):
        low, high = 0.0, 100.0
        for _ in range(200):
            shares = conditional(rows, i, (low + high) / 2)  # type: ignore[arg-type]
            entropy = -sum(p * math.log(p) for p in shares if p > 0)
            low, high = ((low + high) / 2, high) if math.exp(entropy) > perplexity else (low, (low + high) / 2)
        found.append(shares)
    expected = torch.tensor(found, dtype=torch.float64)
    assert torch.allclose(affinities(points, perplexity), (expected + expected.T) / 14, atol=1e-9)


def test_the_gradient_is_that_of_the_divergence() -> None:
    near, place = affinities(drawn(9, 4), 2.5), drawn(9, 2, seed=1).requires_grad_()
    heavy = 1 / (1 + (place[:, None] - place).square().sum(2)) * (1 - torch.eye(9, dtype=torch.float64))
    share = heavy / heavy.sum()
    off = ~torch.eye(9, dtype=torch.bool)
    (near[off] * (near[off].log() - share[off].log())).sum().backward()
    assert place.grad is not None
    assert torch.allclose(gradient(near, place.detach()), place.grad, atol=1e-12)


def test_clusters_stay_apart() -> None:
    centres = 20 * torch.eye(3, 8, dtype=torch.float64)
    points = (centres.repeat_interleave(12, 0) + drawn(36, 8)).float()
    place = tsne(points, perplexity=5)
    assert torch.equal(place, tsne(points, perplexity=5))
    groups = place.view(3, 12, 2)
    middles = groups.mean(1)
    inside = (groups - middles[:, None]).norm(dim=2).max()
    assert torch.pdist(middles).min() > 3 * inside


@pytest.mark.parametrize(
    "features", [torch.zeros(6, 4), torch.ones(3, 4), torch.arange(4.0)[:, None], torch.ones(1, 2)]
)
def test_points_without_neighbourhoods_are_still_a_map(features: Tensor) -> None:
    place = tsne(features)
    assert place.shape == (len(features), 2)
    assert bool(place.isfinite().all())
    assert len(unpacked(packed(place), 2)) == len(features)


def test_principal_components_by_hand() -> None:
    points = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    expected = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    found = principal(points)
    assert torch.allclose(found.abs(), expected.abs())
    # along (3, 4) / 5 and (4, -3) / 5 from the mean (1, 2), the value farthest from 0 positive in each
    turned = torch.tensor([[-6.0, -8.0], [3.0, 4.0], [3.0, 4.0], [1.6, -1.2], [-1.6, 1.2]], dtype=torch.float64)
    found = principal(turned + torch.tensor([1.0, 2.0], dtype=torch.float64))
    along = [10.0, -5.0, -5.0, 0.0, 0.0]
    assert found[:, 0].tolist() == pytest.approx(along, abs=1e-9)
    assert found[:, 1].abs().tolist() == pytest.approx([0.0, 0.0, 0.0, 2.0, 2.0], abs=1e-9)
    for scale in (1.0, 0.01):
        line = principal(scale * torch.tensor([[1.0], [-3.0], [2.0]], dtype=torch.float64))
        # one number each: there is no second component
        assert line.tolist() == [[pytest.approx(scale * v), 0.0] for v in (-1.0, 3.0, -2.0)]


@pytest.mark.parametrize("exaggeration", [12.0, 0.01])
def test_the_descent_is_the_papers(exaggeration: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Momentum 0.5 and then 0.8, gains + 0.2 or * 0.8 but at least 0.01, rate max(N / exaggeration / 4, 50)."""
    monkeypatch.setattr(module, "EARLY", 4)
    monkeypatch.setattr(module, "EXAGGERATION", exaggeration)
    points = drawn(7, 3)
    near = affinities(points, 2.0).tolist()  # (N - 1) / 3, as 30 are too many
    place = principal(points)
    place = (place / place[:, 0].std() * 1e-4).tolist()
    speed, gain = ([[value] * 2 for _ in range(7)] for value in (0.0, 1.0))
    for step in range(30):
        early = step < 4
        heavy = [
            [0.0 if i == j else 1 / (1 + math.dist(a, b) ** 2) for j, b in enumerate(place)]
            for i, a in enumerate(place)
        ]
        total = sum(map(sum, heavy))
        moved = []
        for i in range(7):
            for axis in range(2):
                slope = 4 * sum(
                    ((exaggeration if early else 1.0) * near[i][j] - heavy[i][j] / total)
                    * heavy[i][j]
                    * (place[i][axis] - place[j][axis])
                    for j in range(7)
                )
                same_way = (slope > 0) != (speed[i][axis] > 0) and slope * speed[i][axis] != 0
                gain[i][axis] = max(gain[i][axis] + 0.2 if same_way else gain[i][axis] * 0.8, 0.01)
                rate = max(7 / exaggeration / 4, 50.0)
                speed[i][axis] = (0.5 if early else 0.8) * speed[i][axis] - rate * gain[i][axis] * slope
                moved.append(place[i][axis] + speed[i][axis])
        place = [moved[2 * i : 2 * i + 2] for i in range(7)]
    found = tsne(points, steps=30)
    assert torch.allclose(found, torch.tensor(place, dtype=torch.float64), rtol=1e-6, atol=1e-9)
    assert float(found.abs().max()) > 1e-3, "it has moved"


def test_as_many_steps_and_neighbours_as_usual() -> None:
    assert (module.PERPLEXITY, module.EARLY, module.STEPS, module.EXAGGERATION) == (30.0, 250, 750, 12.0)


def test_a_map_is_kept_in_bytes_with_one_scale_for_both() -> None:
    assert base64.b64decode(packed(torch.tensor([[0.0, 2.0], [4.0, 4.0], [1.0, 2.0]]))) == bytes(
        [0, 0, 255, 128, 64, 0]
    )
    assert unpacked(packed(torch.tensor([3, 250])))[:, 0].tolist() == [3, 250]


def test_samples_are_spread_evenly() -> None:
    assert spread_rows(11, 3).tolist() == [0, 5, 10]
    assert spread_rows(3, 10).tolist() == [0, 1, 2]
