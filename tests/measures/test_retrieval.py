"""Queries against a gallery: average precision and ranks worked out by hand, and a plain loop on random samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from accord.errors import DataError
from accord.measures.retrieval import searched


def at(*degrees: float) -> Tensor:
    """Unit features by their angle, each of another length."""
    return torch.tensor(
        [[(n + 1) * math.cos(math.radians(d)), (n + 1) * math.sin(math.radians(d))] for n, d in enumerate(degrees)],
        dtype=torch.float64,
    )


def test_average_precision_and_rank_by_hand() -> None:
    # One query of identity 7 by camera 1 at 0 degrees; the gallery by angle: other, match, same camera, match, other.
    features = at(0, 10, 20, 5, 30, 40)
    identities = torch.tensor([7, 3, 7, 7, 7, 2])
    cameras = torch.tensor([1, 1, 2, 1, 3, 1])
    precision, rank = searched(features, identities, cameras, 1)
    # The one at 5 degrees is by the query's own camera and left out: ranks are 10 (no), 20 (yes), 30 (yes), 40 (no).
    assert precision.tolist() == [pytest.approx((1 / 2 + 2 / 3) / 2)]
    assert rank.tolist() == [2]


def test_another_identity_by_the_same_camera_stays() -> None:
    precision, rank = searched(at(0, 1, 50), torch.tensor([1, 2, 1]), torch.tensor([4, 4, 5]), 1)
    assert (precision.tolist(), rank.tolist()) == ([0.5], [2])


def test_a_query_nobody_else_saw_has_no_number() -> None:
    precision, rank = searched(at(0, 0, 90), torch.tensor([1, 1, 2]), torch.tensor([1, 1, 2]), 1)
    assert math.isnan(precision[0])
    assert math.isinf(rank[0])


@pytest.mark.parametrize("block", [1, 40, 10_000])
def test_a_plain_loop_gives_the_same(block: int) -> None:
    rng = np.random.default_rng(3)
    features, queries = rng.normal(size=(60, 5)), 12
    identities, cameras = rng.integers(0, 6, 60), rng.integers(0, 3, 60)
    expected = []
    for q in range(queries):
        seen = [g for g in range(queries, 60) if not (identities[g] == identities[q] and cameras[g] == cameras[q])]
        cosine = {
            g: features[q] @ features[g] / np.linalg.norm(features[q]) / np.linalg.norm(features[g]) for g in seen
        }
        ranked = sorted(seen, key=lambda g: -cosine[g])
        places = [place for place, g in enumerate(ranked, start=1) if identities[g] == identities[q]]
        expected.append((np.mean([n / place for n, place in enumerate(places, start=1)]), places[0]))
    precision, rank = searched(
        torch.from_numpy(features), torch.from_numpy(identities), torch.from_numpy(cameras), queries, block
    )
    assert precision.tolist() == pytest.approx([p for p, _ in expected])
    assert rank.tolist() == [r for _, r in expected]


def test_there_must_be_queries_and_a_gallery() -> None:
    for queries in (0, 3):
        with pytest.raises(DataError, match="there must be some, and a gallery"):
            searched(at(0, 1, 2), torch.tensor([1, 1, 1]), torch.tensor([1, 2, 3]), queries)
    with pytest.raises(DataError, match="not finite"):
        searched(torch.full((3, 2), math.nan), torch.tensor([1, 1, 1]), torch.tensor([1, 2, 3]), 1)
