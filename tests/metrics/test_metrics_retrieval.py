"""Mean average precision."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from accord.errors import ConfigError, DataError
from accord.metrics import mean_average_precision


def at(*degrees: float) -> Tensor:
    """Unit vectors in the plane: the closer the angles, the higher the score."""
    return torch.tensor([[math.cos(math.radians(d)), math.sin(math.radians(d))] for d in degrees])


def test_by_hand():
    # Query of class 7 at 0 degrees; gallery ranked 10, 20, 30, 40 degrees: match, miss, match, miss.
    one = mean_average_precision(at(0), torch.tensor([7]), at(30, 10, 40, 20), torch.tensor([7, 7, 1, 2]))
    assert one.mean_average_precision == pytest.approx((1 / 1 + 2 / 3) / 2)
    assert (one.queries, one.skipped) == (1, 0)
    # A second query of class 1 at 50 degrees sees 40, 30, 20, 10: its only match comes first.
    two = mean_average_precision(at(0, 50), torch.tensor([7, 1]), at(30, 10, 40, 20), torch.tensor([7, 7, 1, 2]))
    assert two.mean_average_precision == pytest.approx(((1 + 2 / 3) / 2 + 1) / 2)


def test_lengths_do_not_matter():
    gallery = at(30, 10, 40, 20) * torch.tensor([[100.0], [1.0], [1e-3], [7.0]])
    result = mean_average_precision(5 * at(0), torch.tensor([7]), gallery, torch.tensor([7, 7, 1, 2]))
    assert result.mean_average_precision == pytest.approx((1 + 2 / 3) / 2)


def test_leave_one_out():
    # Angles 0 (A), 10 (B), 25 (A), 60 (B). Each query ranks the three others:
    # 0: B A B -> 1/2. 10: A(0) A(25) B -> 1/3. 25: B(10) A(0) B(60) -> 1/2. 60: A(25) B(10) A(0) -> 1/2.
    result = mean_average_precision(at(0, 10, 25, 60), torch.tensor([0, 1, 0, 1]))
    assert result.mean_average_precision == pytest.approx((1 / 2 + 1 / 3 + 1 / 2 + 1 / 2) / 4)
    assert (result.queries, result.skipped) == (4, 0)


def test_own_camera_is_left_out():
    labels, cameras = torch.tensor([7, 7, 3, 7]), torch.tensor([1, 2, 1, 2])
    # Query class 7, camera 1. The item at 5 degrees (class 7, camera 1) is left out; the one at 10 (class 3,
    # same camera) stays and is a miss; the matches at 20 and 30 degrees have ranks 2 and 3.
    result = mean_average_precision(at(0), torch.tensor([7]), at(5, 20, 10, 30), labels, torch.tensor([1]), cameras)
    assert result.mean_average_precision == pytest.approx((1 / 2 + 2 / 3) / 2)
    without = mean_average_precision(at(0), torch.tensor([7]), at(5, 20, 10, 30), labels)
    assert without.mean_average_precision == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)


def test_leave_one_out_with_cameras():
    # Class 0 at 0 (camera 0), 5 (camera 0), 20 (camera 1); class 1 at 10 (camera 0).
    # 0: without itself and 5: miss(10), hit(20) -> 1/2.   5: the same -> miss, hit -> 1/2.
    # 20: miss(10), hit(5), hit(0) -> (1/2 + 2/3) / 2.   10: nobody else of class 1 -> skipped.
    result = mean_average_precision(
        at(0, 5, 20, 10), torch.tensor([0, 0, 0, 1]), query_cameras=torch.tensor([0, 0, 1, 0])
    )
    assert result.mean_average_precision == pytest.approx((1 / 2 + 1 / 2 + (1 / 2 + 2 / 3) / 2) / 3)
    assert (result.queries, result.skipped) == (3, 1)


def test_queries_without_a_match_are_skipped_and_counted():
    result = mean_average_precision(at(0, 90), torch.tensor([7, 9]), at(10), torch.tensor([7]))
    assert result == (1.0, 1, 1)


def test_equal_scores_keep_the_gallerys_order():
    same = torch.ones(3, 2)
    first = mean_average_precision(same[:1], torch.tensor([1]), same, torch.tensor([1, 0, 0]))
    last = mean_average_precision(same[:1], torch.tensor([1]), same, torch.tensor([0, 0, 1]))
    assert (first.mean_average_precision, last.mean_average_precision) == (1.0, pytest.approx(1 / 3))


def test_zero_and_half_precision_features():
    result = mean_average_precision(torch.zeros(1, 2), torch.tensor([0]), at(10, 20), torch.tensor([0, 1]))
    assert result.mean_average_precision == 1.0
    # Half a degree apart: the cosines 0.99988 and 0.99997 are both 1 in half precision.
    close = mean_average_precision(
        at(0).half(),
        torch.tensor([0]),
        torch.tensor([[8.0, 0.125], [8.0, 0.0625]]).half(),
        torch.tensor([1, 0]),
    )
    assert close.mean_average_precision == 1.0


def naive(query, labels, gallery, gallery_labels, cameras, gallery_cameras, loo):
    """One query, one item at a time."""
    precisions = []
    for i in range(len(query)):
        items = []
        for j in range(len(gallery)):
            junk = cameras is not None and labels[i] == gallery_labels[j] and cameras[i] == gallery_cameras[j]
            if not junk and not (loo and i == j):
                score = float(torch.cosine_similarity(query[i], gallery[j], dim=0))
                items.append((-score, j, bool(labels[i] == gallery_labels[j])))
        hits, found = 0, []
        for rank, (_, _, match) in enumerate(sorted(items), start=1):
            if match:
                hits += 1
                found.append(hits / rank)
        if found:
            precisions.append(sum(found) / len(found))
    return precisions


@settings(deadline=None, max_examples=25)
@given(
    *(st.integers(0, 10_000), st.integers(2, 9), st.integers(2, 12)),
    *(st.booleans(), st.booleans(), st.sampled_from([1, 7, 30, 10_000])),
)
def test_against_a_naive_search_in_blocks_of_any_size(seed, queries, items, loo, with_cameras, max_scores):
    g = torch.Generator().manual_seed(seed)
    items = queries if loo else items
    query = torch.randn(queries, 3, generator=g, dtype=torch.float64)
    gallery = query if loo else torch.randn(items, 3, generator=g, dtype=torch.float64)
    labels = torch.randint(3, (queries,), generator=g)
    gallery_labels = labels if loo else torch.randint(3, (items,), generator=g)
    cameras = torch.randint(2, (queries,), generator=g) if with_cameras else None
    gallery_cameras = cameras if loo or cameras is None else torch.randint(2, (items,), generator=g)
    expected = naive(query, labels, gallery, gallery_labels, cameras, gallery_cameras, loo)
    others = (None, None, cameras, None) if loo else (gallery, gallery_labels, cameras, gallery_cameras)
    if not expected:
        with pytest.raises(DataError, match=r"no query has a match"):
            mean_average_precision(query, labels, *others, max_scores=max_scores)
        return
    result = mean_average_precision(query, labels, *others, max_scores=max_scores)
    assert result.mean_average_precision == pytest.approx(sum(expected) / len(expected))
    assert (result.queries, result.skipped) == (len(expected), queries - len(expected))


X, Y = torch.ones(3, 2), torch.tensor([0, 0, 1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(0, 2), Y[:0]), r"query features must be \[items, features\]"),
        ((X, Y, torch.zeros(0, 2), Y[:0]), r"gallery features must be"),
        ((X, Y, torch.ones(3, 0), Y), r"gallery features must be"),
        ((X[0], Y), r"query features must be"),
        ((X, Y[:2]), r"query labels must be one per item, 3 in all"),
        ((X, Y, X, Y, Y, Y[:1]), r"gallery cameras must be one per item"),
        ((X, Y, X), r"without gallery labels"),
        ((X, Y, None, Y), r"without gallery features"),
        ((X, Y, None, None, Y, Y), r"without gallery features"),
        ((X, Y, X, Y, Y), r"for queries and gallery, or for neither"),
        ((X, Y, torch.ones(3, 5), Y), r"2 features, the gallery has 5"),
        ((X * float("nan"), Y), r"not finite"),
        ((X, torch.tensor([0, 1, 2])), r"no query has a match"),
    ],
)
def test_what_cannot_be_searched(arguments, message):
    with pytest.raises(DataError, match=message):
        mean_average_precision(*arguments)


def test_max_scores_is_checked():
    with pytest.raises(ConfigError, match=r"at least 1, got 0"):
        mean_average_precision(X, Y, max_scores=0)
