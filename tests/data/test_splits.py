"""Local splits: nothing twice, nothing lost, and no client without training data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.data import splits
from accord.data.federated import Groups
from accord.errors import ConfigError, DataError


def rng(seed=0):
    return np.random.default_rng(seed)


class TestHoldout:
    def test_sizes_by_hand(self):
        groups = Groups.of([range(0, 8), [8], [], range(9, 11), range(11, 14), range(14, 114)])
        rest, held = splits.holdout(groups, 0.25, rng())
        # 8/4 = 2; the only sample stays; 2/4 = 0.5 rounds to 1; 3/4 rounds to 1; 100/4 = 25
        assert held.sizes.tolist() == [2, 0, 0, 1, 1, 25]
        assert rest.sizes.tolist() == [6, 1, 0, 1, 2, 75]
        for k in range(6):
            assert sorted([*rest[k], *held[k]]) == groups[k].tolist()
            assert rest[k].tolist() == sorted(rest[k].tolist())

    @given(
        st.lists(st.integers(0, 9), min_size=1, max_size=8),
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 99),
    )
    @settings(deadline=None, max_examples=60)
    def test_train_never_runs_empty(self, sizes, fraction, seed):
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        groups = Groups(rng(seed).permutation(int(offsets[-1])), offsets)
        rest, held = splits.holdout(groups, fraction, rng(seed))
        for k, size in enumerate(sizes):
            assert sorted([*rest[k], *held[k]]) == sorted(groups[k])
            assert len(rest[k]) >= min(size, 1)

    def test_nothing_held_out(self):
        groups = Groups.of([[3, 5], [1]])
        rest, held = splits.holdout(groups, 0.0, rng())
        assert [rest[k].tolist() for k in range(2)] == [[3, 5], [1]]
        assert held.sizes.tolist() == [0, 0]

    def test_it_is_random(self):
        groups = Groups.of([range(100)])
        assert splits.holdout(groups, 0.5, rng(0))[1][0].tolist() != splits.holdout(groups, 0.5, rng(1))[1][0].tolist()

    @pytest.mark.parametrize("fraction", [1, 1.5, -0.1, float("nan"), None, "a", True])
    def test_bad_fraction(self, fraction):
        with pytest.raises(ConfigError, match="at least 0 and below 1"):
            splits.holdout(Groups.of([[0]]), fraction, rng())


class TestMatching:
    def test_by_hand(self):
        # class 0: clients 0 and 1 hold 3 and 1; class 1: client 1 alone; class 2: nobody
        train_labels = np.array([0, 0, 0, 0, 1, 1])
        train = Groups.of([[0, 1, 2], [3, 4, 5], []])
        test_labels = np.array([0, 1, 2, 0, 0, 0, 1, 2, 0, 0, 0, 0])  # eight, two and two
        parts = splits.matching(train, train_labels, test_labels, rng())
        of_class = [np.bincount(test_labels[parts[k]], minlength=3).tolist() for k in range(3)]
        assert of_class == [[6, 0, 0], [2, 2, 0], [0, 0, 0]]
        assert len(set(parts.order.tolist())) == 10

    def test_kinds_of_one_part_alone_are_dealt_to_nobody(self):
        train = Groups.of([[0, 1], [2]])
        for of_train, of_test, expected in (
            ([0, 0, 5], [0, 0, 1], [[0, 1], []]),
            ([0, 0, 1], [7, 0, 1], [[1], [2]]),
            ([0, 0, 1], [], [[], []]),
        ):
            parts = splits.matching(train, np.array(of_train), np.array(of_test, dtype=np.int64), rng())
            assert [sorted(parts[k].tolist()) for k in range(2)] == expected

    def test_shards_of_the_own_classes(self):
        # 10 classes cut into 4 shards of 5; client k holds shard k of classes k mod 10 and (k + 1) mod 10
        labels = np.repeat(np.arange(10), 20)
        rows = [[] for _ in range(20)]
        for c in range(10):
            for shard, client in enumerate([c, c + 10, (c + 9) % 10, (c + 9) % 10 + 10]):
                rows[client] += range(c * 20 + shard * 5, c * 20 + shard * 5 + 5)
        test_labels = np.tile(np.arange(10), 12)
        parts = splits.matching(Groups.of(rows), labels, test_labels, rng())
        for client in range(20):
            expected = np.zeros(10, dtype=int)
            expected[[client % 10, (client + 1) % 10]] = 3  # 12 test samples a class, 4 shards
            assert np.array_equal(np.bincount(test_labels[parts[client]], minlength=10), expected)

    @given(st.integers(0, 500), st.integers(1, 9), st.integers(1, 5))
    @settings(deadline=None, max_examples=40)
    def test_disjoint_complete_and_within_one(self, seed, clients, classes):
        generator = rng(seed)
        labels, test_labels = generator.integers(0, classes, 80), generator.integers(0, classes, 50)
        owner = generator.integers(0, clients, 80)
        parts = splits.matching(Groups.by_id(owner, clients), labels, test_labels, generator)
        assert len(set(parts.order.tolist())) == len(parts.order)
        held = set(labels.tolist())
        assert len(parts.order) == sum(int(c) in held for c in test_labels)
        for c in held:
            for k in range(clients):
                share = (owner[labels == c] == k).mean() * (test_labels == c).sum()
                assert abs((test_labels[parts[k]] == c).sum() - share) < 1

    def test_many_clients_share_few_test_samples_fairly(self):
        labels, test_labels = np.zeros(1000, dtype=int), np.zeros(100, dtype=int)
        train = Groups.by_id(np.arange(1000), 1000)
        got = sum(splits.matching(train, labels, test_labels, rng(i)).sizes for i in range(400))
        # each client gets one of ten on average: 40 of 400, standard deviation 6
        assert np.abs(got - 40).max() < 6 * 6


class TestOthers:
    def test_shared(self):
        parts = splits.shared(3, 2)
        assert [parts[k].tolist() for k in range(2)] == [[0, 1, 2], [0, 1, 2]]
        with pytest.raises(ConfigError, match="use test = 'matching'"):
            splits.shared(10_000, 100_000)

    def test_natural(self):
        parts = splits.natural(np.array([1, 0, 1]), 3, 3)
        assert [parts[k].tolist() for k in range(3)] == [[1], [0, 2], []]
        with pytest.raises(DataError, match="names the client of each test sample"):
            splits.natural(None, 3, 3)
        with pytest.raises(DataError, match="set clients = 6"):
            splits.natural(np.array([1, 0, 5]), 3, 3)
        with pytest.raises(DataError, match="per test sample"):
            splits.natural(np.array([1, 0]), 3, 3)

    def test_nothing(self):
        assert splits.nothing(3).sizes.tolist() == [0, 0, 0]

    def test_unseen_clients(self):
        assert splits.unseen_clients(10, 0, rng()) == frozenset()
        assert len(splits.unseen_clients(10, 3, rng())) == 3
        assert len(splits.unseen_clients(10, 0.25, rng())) == 2
        assert splits.unseen_clients(10, 9, rng()) < set(range(10))
        assert splits.unseen_clients(50, 5, rng(0)) != splits.unseen_clients(50, 5, rng(1))

    @pytest.mark.parametrize("unseen", [-1, 1.0, 2.5, float("nan"), "1", True, None])
    def test_bad_unseen(self, unseen):
        with pytest.raises(ConfigError, match="unseen must be"):
            splits.unseen_clients(10, unseen, rng())

    def test_all_unseen(self):
        with pytest.raises(ConfigError, match="unseen may be at most 9"):
            splits.unseen_clients(10, 10, rng())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=60).filter(lambda s: len(set(s)) < len(s)),
    st.floats(0.05, 0.95),
    st.integers(0, 99),
)
def test_stratified_properties(strata, fraction, seed):
    array = np.array(strata)
    kept, aside = splits.stratified(array, fraction, rng(seed))
    assert sorted([*kept, *aside]) == list(range(len(array)))
    for stratum in set(strata):
        n, m = int((array == stratum).sum()), int((array[aside] == stratum).sum())
        assert m < n
        assert (m == 0) == (n == 1)
        assert m in (1, n - 1) or abs(m - fraction * n) <= 0.5 or n == 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(0, 99))
def test_stratified_spreads_over_labels(sizes, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    if len(labels) < 2:
        return
    _, aside = splits.stratified(np.zeros_like(labels), 0.2, rng(seed), spread=labels)
    share = len(aside) / len(labels)
    for label, n in enumerate(sizes):
        assert abs(int((labels[aside] == label).sum()) - share * n) < 1


def test_nothing_is_an_empty_list_for_every_client() -> None:
    none = splits.nothing(3)
    assert none.offsets.tolist() == [0, 0, 0, 0]
    assert none.order.tolist() == []
