"""Queries against a gallery: average precision and ranks worked out by hand, and a plain loop on random samples."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from accord.errors import ConfigError, DataError
from accord.measures.retrieval import RANKS, Retrieval, searched


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


@pytest.mark.parametrize(
    "close",
    [
        torch.tensor([[8.0, 0.0], [8.0, 0.125], [8.0, 0.03125]]).half(),  # cosines that half precision takes for 1
        torch.tensor([[1.0, 0.0], [1.0, 3e-6], [1.0, 1e-6]], dtype=torch.float64),  # and single precision
    ],
)
def test_scores_that_differ_are_not_tied_by_rounding(close: Tensor) -> None:
    precision, rank = searched(close, torch.tensor([1, 2, 1]), torch.tensor([1, 2, 2]), 1)
    assert (precision.tolist(), rank.tolist()) == ([1.0], [1])


def test_features_of_any_shape_are_rows() -> None:
    features = torch.tensor([[[1.0], [0.0]], [[0.0], [1.0]], [[1.0], [1.0]]])
    precision, rank = searched(features, torch.tensor([1, 2, 1]), torch.tensor([1, 2, 2]), 1)
    assert (precision.tolist(), rank.tolist()) == ([1.0], [1])


def test_a_clients_queries_are_those_of_its_identities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of identity 5 go to the first of two clients, that of 6 to the other."""
    precision, rank = np.array([1.0, 0.5, 0.25]), np.array([1.0, 2.0, 6.0])
    monkeypatch.setattr("accord.measures.retrieval.searched", lambda *given: (precision, rank))
    scores = SimpleNamespace(features=None, labels=torch.tensor([5, 5, 6, 5, 6]))
    search = SimpleNamespace(cameras=np.arange(5), queries=3)
    scene: Any = SimpleNamespace(data=SimpleNamespace(search=search), members=[4, 9])
    moment: Any = SimpleNamespace(predictions=SimpleNamespace(plain=scores))
    found = Retrieval().round(scene, moment)["retrieval"]
    assert (found["clients"]["best"], found["clients"]["worst"]) == (0.75, 0.25)
    assert [found[f"cmc{k}"] for k in RANKS] == pytest.approx([1 / 3, 2 / 3, 1.0])


def test_there_must_be_queries_and_a_gallery() -> None:
    for queries in (0, 3):
        with pytest.raises(DataError, match="there must be some, and a gallery"):
            searched(at(0, 1, 2), torch.tensor([1, 1, 1]), torch.tensor([1, 2, 3]), queries)
    with pytest.raises(DataError, match="not finite"):
        searched(torch.full((3, 2), math.nan), torch.tensor([1, 1, 1]), torch.tensor([1, 2, 3]), 1)


def test_a_round_of_four_queries_by_hand() -> None:
    """Identities 5, 6, 5 and 9 are asked for; of the last no other camera has a picture."""
    # 5 at 0 degrees finds its match second, 6 at 90 first, 5 at 80 fifth: 1/2, 1 and 1/5
    degrees = (0, 90, 80, 45, 10, 91, 60, 50, 40, 5)
    identities = torch.tensor([5, 6, 5, 9, 5, 6, 1, 2, 3, 4])
    cameras = np.array([1, 1, 1, 1, 2, 2, 2, 2, 2, 2])
    scores = SimpleNamespace(features=at(*degrees), labels=identities)
    scene: Any = SimpleNamespace(
        data=SimpleNamespace(search=SimpleNamespace(cameras=cameras, queries=4), test_pool=range(10)),
        members=[0, 3],
    )
    moment: Any = SimpleNamespace(predictions=SimpleNamespace(plain=scores))
    found = Retrieval().round(scene, moment)["retrieval"]
    # at 80 degrees: 91 is 11 away, then 60, 50, 40, and 10 (its match) before 5
    assert found["map"] == pytest.approx((1 / 2 + 1 + 1 / 5) / 3)
    assert RANKS == (1, 5, 10)
    assert [found[f"cmc{k}"] for k in RANKS] == pytest.approx([1 / 3, 1.0, 1.0])
    assert found["queries"] == 3
    # of the identities 5, 6 and 9 the first and the third go to the first client, the second to the other
    assert (found["clients"]["best"], found["clients"]["worst"]) == (1.0, pytest.approx((1 / 2 + 1 / 5) / 2))
    Retrieval().check(scene)
    assert Retrieval().round(scene, SimpleNamespace(predictions=None)) == {}  # type: ignore[arg-type]
    nobody = torch.tensor([5, 6, 5, 9, 0, 0, 1, 2, 3, 4])
    moment.predictions.plain = SimpleNamespace(features=at(*degrees), labels=nobody)
    with pytest.raises(DataError, match="no query has a match by another camera"):
        Retrieval().round(scene, moment)
    for search, pool in ((None, range(10)), (scene.data.search, range(9))):
        other: Any = SimpleNamespace(data=SimpleNamespace(search=search, test_pool=pool))
        with pytest.raises(ConfigError, match="needs a data set with queries and a gallery"):
            Retrieval().check(other)
    assert Retrieval().round(SimpleNamespace(data=SimpleNamespace(search=None)), moment) == {}  # type: ignore[arg-type]
