"""Every number a diagnosis is made of, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from accord.core.keys import Key
from accord.diagnosis.chance import chance, outstanding, shufflings
from accord.diagnosis.concept import disagreement, disagreements, neighbours
from accord.diagnosis.duplicates import duplicate_samples, expected_meetings, near_copies
from accord.diagnosis.features import FOURIER, fourier
from accord.diagnosis.finding import graded, several
from accord.diagnosis.gathered import gathered, label_rows, label_strata, shared_out
from accord.diagnosis.labels import Steps, label_skew
from accord.diagnosis.probe import Probed, lost_agreement
from accord.diagnosis.quantity import effective, gini, gini_by_chance, quantity_skew
from accord.diagnosis.rare import expected_holders, rare_classes
from accord.diagnosis.shift import area, beside_labels, comparable, discrepancies, domain_classifier, means
from support.small import federation


def test_gini_and_effective_clients() -> None:
    assert gini(np.array([5, 5, 5])) == 0
    assert gini(np.array([0, 0, 0, 4])) == pytest.approx(0.75)
    assert gini(np.array([1, 3])) == pytest.approx(0.25)
    assert gini(np.array([0, 0])) == 0
    assert effective(np.array([1, 3])) == pytest.approx(1.6)
    assert effective(np.array([7, 7, 7])) == pytest.approx(3)


def test_gini_by_chance_is_what_random_dealing_gives() -> None:
    rng = np.random.default_rng(0)
    drawn = [gini(np.bincount(rng.integers(0, 500, 500 * 40), minlength=500)) for _ in range(5)]
    assert gini_by_chance(40) == pytest.approx(np.mean(drawn), rel=0.03)


def test_sizes_in_a_sentence() -> None:
    data = federation([[0] * 1 + [1] * 1, [0] * 30 + [1] * 30, [0, 1]], names=("a", "b", "c"))
    found = quantity_skew(data)
    assert found.severity == "mild"
    assert found.numbers["effective_clients"] == pytest.approx(64**2 / (4 + 3600 + 4))
    assert found.clients == ("b",)
    assert "a holds 2 samples, b 60" in found.sentence or "c holds 2 samples, b 60" in found.sentence


def test_label_distance_and_entropy() -> None:
    data = federation([[0] * 40, [1] * 40])
    found = label_skew(data, Key(0))
    assert found.severity == "strong"
    assert found.numbers["distance"] == pytest.approx(1.0)  # |1 - 1/2| + |0 - 1/2|
    assert found.numbers["effective_labels"] == pytest.approx(1.0)
    assert found.numbers["share_of_shufflings"] == 0.01
    assert found.picture["cells"] == [[100.0, 0.0], [0.0, 100.0]]


def test_transport_of_numbers() -> None:
    steps = Steps.of(np.array([0.0, 1.0, 2.0, 3.0]))
    assert steps.transport(np.array([0, 0, 1, 1]), 2).tolist() == pytest.approx([1.0, 1.0])
    assert steps.transport(np.array([0, 0, 0, 0]), 2).tolist() == pytest.approx([0.0, 0.0])
    assert steps.transport(np.array([1, 0, 0, 0]), 2)[1] == pytest.approx(0.75 + 0.5 + 0.25)


def test_chance() -> None:
    found = chance(5.0, np.array([1.0, 2.0, 3.0]))
    assert (found.mean, found.deviation, found.share) == (2.0, 1.0, 0.25)
    assert found.excess == 3
    assert found.away == 3
    assert not found.sure
    assert chance(2.0, np.full(99, 2.0)).share == 1.0
    assert chance(9.0, np.linspace(0, 1, 99)).sure


def test_who_stands_out_is_beyond_every_shuffled_client() -> None:
    shuffled = np.random.default_rng(0).normal(size=(99, 6))
    seen = np.array([0.1, 20.0, 0.0, 3.0, 9.0, -20.0])
    assert outstanding(seen, shuffled) == [1, 4]
    assert outstanding(np.zeros(6), np.zeros((99, 6))) == []


def test_shuffling_keeps_the_strata() -> None:
    groups, strata = np.array([0, 0, 1, 1, 2, 2, 0]), np.array([0, 1, 0, 1, 0, 1, 1])
    for shuffled in shufflings(groups, strata, np.random.default_rng(0), 20):
        for stratum in (0, 1):
            assert sorted(shuffled[strata == stratum]) == sorted(groups[strata == stratum])
    turned = np.stack(list(shufflings(groups, strata, np.random.default_rng(0), 20)))
    assert (turned != groups).any()


def test_room_is_shared_out_evenly() -> None:
    assert shared_out(np.array([2, 10, 10]), 12).tolist() == [2, 5, 5]
    assert shared_out(np.array([2, 3]), 12).tolist() == [2, 3]
    assert shared_out(np.array([9, 9, 9]), 10).tolist() == [3, 3, 3]


def test_strata_and_rows_of_labels() -> None:
    assert label_strata(torch.tensor([2, 0, 2]), "classification").tolist() == [2, 0, 2]
    sets = label_strata(torch.tensor([[1.0, 0], [0, 1], [1, 0]]), "multilabel")
    assert sets[0] == sets[2] != sets[1]
    numbers = label_strata(torch.arange(60.0), "regression")
    assert np.bincount(numbers).tolist() == [10] * 6
    assert label_strata(torch.zeros(3, 4, dtype=torch.int64), "tokens").tolist() == [0, 0, 0]
    tokens = label_rows(torch.tensor([[1, 1, -100], [0, 2, 2]]), "tokens", 3)
    assert tokens.sum(1).tolist() == [2, 3]
    assert sorted(tokens.sum(0).tolist()) == [0, 1, 2, 2]
    many = label_rows(torch.arange(5), "classification", 5, most=2)
    assert many.shape == (5, 3)
    assert many.sum(0).tolist() == [1, 1, 3]


def test_who_would_hold_a_class_by_chance() -> None:
    assert expected_holders(np.array([1, 3, 0]), np.array([2, 4]))[0] == pytest.approx(0.5 + 0.875)
    assert expected_holders(np.array([1, 3]), np.array([2, 4]))[1] == pytest.approx(2)


def test_rare_classes_by_hand() -> None:
    lists = [[0] * 20 + [1] * 20 for _ in range(4)]
    assert rare_classes(federation(lists)).severity == "none"
    lists[2] += [2] * 12
    found = rare_classes(federation(lists, names=tuple("abcd")))
    assert found.severity == "strong"
    assert found.clients == ("c",)
    assert found.numbers["at_one_client"] == 1
    assert found.sentence.startswith("2 is held by a single client of 4")
    scarce = [[0] * 60 + [1] * 60 + [2] * 2 for _ in range(4)]
    found = rare_classes(federation(scarce))
    assert (found.severity, found.numbers["rare"], found.numbers["fewest_samples"]) == ("mild", 1, 8)


def test_a_class_that_is_only_tested() -> None:
    found = rare_classes(federation([[0, 1] * 9] * 3, test=[0, 1, 2]))
    assert found.severity == "strong"
    assert found.sentence == "2 is tested but in nobody's training data."


def test_area_under_the_curve() -> None:
    own = np.array([True, False, True, False])
    one = np.zeros(4, np.int64)
    assert area(np.array([4.0, 1.0, 3.0, 2.0]), own, one) == 1.0
    assert area(np.array([1.0, 4.0, 2.0, 3.0]), own, one) == 0.0
    assert area(np.array([2.0, 2.0, 2.0, 2.0]), own, one) == 0.5
    assert area(np.array([3.0, 2.0, 1.0, 4.0]), own, one) == 0.25
    # within its own label only: 3 > 2 in the first, 1 < 4 in the second
    assert area(np.array([3.0, 2.0, 1.0, 4.0]), own, np.array([0, 0, 1, 1])) == 0.5
    assert math.isnan(area(np.arange(4.0), own, np.array([0, 1, 0, 1])))


def test_a_domain_classifier_sees_what_differs_and_guesses_where_nothing_does() -> None:
    rng = np.random.default_rng(0)
    client, strata = np.arange(600) % 2, np.arange(600) // 2 % 3
    same = rng.normal(size=(600, 4)) + strata[:, None]
    assert domain_classifier(same, client, strata, 2, rng) == pytest.approx([0.5, 0.5], abs=0.06)
    moved = same + 3.0 * client[:, None]
    assert domain_classifier(moved, client, strata, 2, rng) == pytest.approx([1.0, 1.0], abs=0.02)


def test_fourier_features_are_a_gaussian_kernels() -> None:
    rows = np.random.default_rng(0).normal(size=(120, 3))
    made = fourier(rows, Key(0))
    assert made.shape == (120, FOURIER)
    assert (made**2).sum(1) == pytest.approx(np.ones(120))
    apart = np.sqrt(((rows[:, None] - rows[None]) ** 2).sum(-1))
    usual = np.median(apart[np.triu_indices(120, 1)])
    kernel = np.mean([np.exp(-0.5 * (apart / (width * usual)) ** 2) for width in (0.7, 2.0)], 0)
    assert np.abs(made @ made.T - kernel).mean() < 0.06


def test_discrepancy_of_two_clients_by_hand() -> None:
    client = np.repeat([0, 1], 4)
    strata = np.zeros(8, np.int64)
    values = np.array([[1.0], [3.0], [1.0], [3.0], [5.0], [7.0], [5.0], [7.0]])  # means 2 and 6, variances 1 each
    found = discrepancies(values, client, strata, 2)
    # (6 - 2)^2 less twice the variance of a mean, 1 / 3, over the mean square about 4, which is 5
    assert found[0, 1] == pytest.approx((16 - 2 / 3) / 5)
    assert found[0, 0] == 0


def test_directions_between_labels_are_left_out() -> None:
    strata = np.array([0, 0, 1, 1])
    values = np.zeros((4, 8))
    values[:, 0], values[:, 1] = [0, 0, 2, 2], [1, -1, 1, -1]
    left = beside_labels(values, strata)
    assert left[:, 0] == pytest.approx(np.zeros(4))
    assert left[:, 1] == pytest.approx([1, -1, 1, -1])


def test_only_labels_of_several_clients_are_compared() -> None:
    assert comparable(np.array([0, 1, 0, 0]), np.array([0, 0, 1, 1])).tolist() == [True, True, False, False]
    assert means(np.array([[1.0], [3.0], [9.0]]), np.array([0, 0, 2]), 3)[:, 0].tolist() == [2, 0, 9]


def two_heaps(second: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """Two clients with seven samples in each of two heaps; the first calls them 0 and 1."""
    rng = np.random.default_rng(0)
    place = np.concatenate([rng.normal(0, 0.1, 14), rng.normal(50, 0.1, 14)])[:, None]
    client = np.tile([0, 1], 14)
    heap = np.repeat([0, 1], 14)
    labels = np.where(client == 0, heap, np.array(second)[heap])
    return client, labels.astype(np.int64), neighbours(place, 27)


@pytest.mark.parametrize(("second", "expected"), [((0, 1), 0.0), ((1, 0), 1.0)])
def test_disagreement_by_hand(second: tuple[int, int], expected: float) -> None:
    client, labels, near = two_heaps(second)
    unlike = disagreements(labels[:, None].astype(float), near)
    found = disagreement(client, labels, near, unlike, np.ones((2, 2), bool))
    assert found.overall == pytest.approx(expected)
    assert found.each.tolist() == pytest.approx([expected, expected])
    assert found.own.tolist() == [0, 0]
    assert found.met == 28
    apart = disagreement(client, labels, near, unlike, np.eye(2, dtype=bool))
    assert apart.met == 0, "clients whose inputs differ are not compared"


def test_numbers_disagree_by_their_squared_difference() -> None:
    found = disagreements(np.array([[0.0], [1.5]]), np.array([[1], [0]]))
    assert found.tolist() == [[2.25], [2.25]]


def test_neighbours_are_in_order_and_not_oneself() -> None:
    assert neighbours(np.array([[0.0], [1.0], [3.0]]), 5).tolist() == [[1, 2], [0, 2], [1, 0]]


def test_agreement_that_is_lost() -> None:
    assert lost_agreement(0.1, [0.4, 0.6]) == pytest.approx(0.8)
    assert lost_agreement(0.0, [0.01, 0.02]) == 0.0
    probed = Probed(np.array([[1, 0.5, -0.5], [0.5, 1, 0.3], [-0.5, 0.3, 1]]), np.zeros(3), (0.1, 0.2, 0.4))
    assert probed.agreement == pytest.approx(0.1)
    assert probed.conflicts == pytest.approx(1 / 3)
    assert probed.score == pytest.approx(0.3)


def test_equal_pairs_that_are_to_be_expected() -> None:
    rows = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    assert expected_meetings(rows, 4) == pytest.approx(6 / 9)
    assert expected_meetings(torch.rand(300, 40), 300) < 1e-9


def test_copies_between_clients_and_with_the_test_samples() -> None:
    data = federation([[0, 1] * 20, [0, 1] * 20, [0, 1] * 20], width=40, names=("a", "b", "c"))
    x = data.train_pool.x.clone()
    x[40:44] = x[0:4]  # b has four of a's
    data.test_pool.x[0] = x[80]
    held = federation([[0, 1] * 20] * 3, width=40, names=("a", "b", "c"), x=x, test_x=data.test_pool.x)
    found = duplicate_samples(held, gathered(held, Key(0)))
    assert found.severity == "strong"
    assert found.numbers["at_several_clients"] == 8
    assert found.numbers["in_training_and_test"] == 1
    assert found.clients == ("a", "b")
    assert found.picture["values"] == [4]
    assert found.sentence.startswith("8 training samples lie at more than one client, most at a and b (4)")


def test_nearly_equal_samples() -> None:
    data = federation([[0, 1] * 20, [0, 1] * 20], width=40)
    x = data.train_pool.x.clone()
    x[40:43] = x[0:3] + 0.01
    near = federation([[0, 1] * 20, [0, 1] * 20], width=40, x=x)
    assert near_copies(gathered(data, Key(0))) == 0
    assert near_copies(gathered(near, Key(0))) == 6


def test_equal_rows_of_a_plain_table_are_no_copies() -> None:
    x = torch.randint(0, 3, (200, 2), generator=torch.Generator().manual_seed(0)).float()
    data = federation([[0, 1] * 50, [0, 1] * 50], width=2, x=x)
    found = duplicate_samples(data, gathered(data, Key(0)))
    assert found.severity == "none"
    assert "few different values" in found.sentence


def test_grades_and_lists() -> None:
    assert [graded(v, 0.1, 0.5) for v in (0.05, 0.1, 0.5, math.nan)] == ["none", "mild", "strong", "none"]
    assert graded(0.9, 0.1, 0.5, sure=False) == "none"
    assert several(("a", "b", "c"), 2) == "a, b and 1 more"
