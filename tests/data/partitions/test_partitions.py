"""Partitions: what each promises, on small data by hand and on large data for time."""

from __future__ import annotations

import inspect
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.data.federated import Dataset, Groups, Pool
from accord.data.partitions import PARTITIONS, dirichlet
from accord.data.partitions.dirichlet import dirichlet_counts, lda_client
from accord.data.partitions.shards import hand_out
from accord.errors import ConfigError, DataError


def toy(labels, classes, domains=None, clients=None) -> Dataset:
    y = torch.as_tensor(np.asarray(labels, dtype=np.int64))
    pool = Pool(torch.zeros(len(y), 1), y)
    names = tuple(f"class {c}" for c in range(classes))
    return Dataset("toy", pool, pool, names, train_domains=domains, train_clients=clients)


def rng(seed=0):
    return np.random.default_rng(seed)


def counts_of(groups: Groups, labels, classes: int):
    labels = np.asarray(labels)
    return np.array([np.bincount(labels[groups[k]], minlength=classes) for k in range(len(groups))])


def assert_disjoint(groups: Groups, samples: int, *, all_used: bool = True):
    owners = Counter(groups.order.tolist())
    assert max(owners.values()) == 1
    assert min(owners) >= 0
    assert max(owners) < samples
    if all_used:
        assert len(owners) == samples


# MNIST's class sizes, so that the papers' settings are met exactly.
MNIST = np.repeat(np.arange(10), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])


class TestEveryPartition:
    @pytest.mark.parametrize("name", sorted(set(PARTITIONS) - {"domains", "natural", "class_shards"}))
    @given(data=st.data())
    @settings(deadline=None, max_examples=25)
    def test_disjoint_and_complete(self, name, data):
        classes = data.draw(st.integers(2, 6))
        clients = data.draw(st.integers(1, classes))
        labels = data.draw(st.lists(st.integers(0, classes - 1), min_size=60, max_size=120))
        labels[:classes] = range(classes)
        seed = data.draw(st.integers(0, 1000))
        groups = PARTITIONS[name](toy(labels, classes), clients, rng(seed))
        assert len(groups) == clients
        assert groups.sizes.min() >= 1
        assert_disjoint(groups, len(labels), all_used=name != "lda")

    @pytest.mark.parametrize("name", list(PARTITIONS))
    def test_same_seed_same_partition(self, name):
        labels = np.arange(200) % 4
        data = toy(labels, 4, domains=np.arange(200) // 100, clients=np.arange(200) % 4)
        more = {"shards_per_class": 2} if name == "class_shards" else {}
        first, again = (PARTITIONS[name](data, 4, rng(3), **more) for _ in range(2))
        assert np.array_equal(first.order, again.order)
        assert np.array_equal(first.offsets, again.offsets)

    @pytest.mark.parametrize("name", list(PARTITIONS))
    def test_settings_are_documented_and_in_range(self, name):
        for parameter in inspect.signature(PARTITIONS[name]).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY:
                assert parameter.annotation.startswith("Annotated[")
                assert parameter.default is not parameter.empty

    @pytest.mark.parametrize("name", list(PARTITIONS))
    def test_bad_input_is_refused(self, name):
        rule = PARTITIONS[name]
        good = toy(np.arange(100) % 4, 4)
        for clients in (0, -3, 2.0, True, None):
            with pytest.raises(ConfigError, match="clients must be a whole number"):
                rule(good, clients, rng())
        with pytest.raises(DataError, match="no training samples"):
            rule(toy([], 4), 2, rng())
        with pytest.raises(DataError, match=r"3 labels .* first is 4 at position 4"):
            rule(toy([0, 1, 2, 3, 4, 5, 9], 4), 2, rng())
        with pytest.raises(DataError, match="first is -1"):
            rule(toy([0, -1], 4), 2, rng())
        with pytest.raises(ConfigError, match="has no setting 'nonsense'"):
            rule(good, 2, rng(), nonsense=1)

    def test_unknown_name(self):
        with pytest.raises(ConfigError, match="Did you mean 'dirichlet'"):
            PARTITIONS["dirichelt"]

    @pytest.mark.parametrize(
        ("name", "bad", "message"),
        [
            ("dirichlet", {"alpha": 0}, "alpha = 0: must be at least 1e-06"),
            ("dirichlet", {"alpha": -0.5}, "must be at least"),
            ("dirichlet", {"alpha": float("nan")}, "finite number"),
            ("dirichlet", {"alpha": float("inf")}, "finite number"),
            ("dirichlet", {"alpha": "0.5"}, "a number; write it without quotes"),
            ("dirichlet", {"min_size": 0}, "at least 1"),
            ("dirichlet", {"min_size": 2.5}, "whole number"),
            ("dirichlet", {"balance": 1}, "true or false"),
            ("dirichlet", {"aplha": 1}, "Did you mean 'alpha'"),
            ("lda", {"alpha": 0.0}, "at least"),
            ("class_shards", {"shards_per_class": 0}, "at least 1"),
            ("sorted_shards", {"shards_per_client": True}, "whole number"),
            ("label_split", {"groups": "thirds"}, "one of even_odd, halves"),
            ("quantity", {"law": "powr"}, "Did you mean 'power'"),
            ("quantity", {"spread": 11}, "at most 10"),
            ("iid", {"alpha": 1}, "It has no settings"),
        ],
    )
    def test_bad_settings_are_refused(self, name, bad, message):
        with pytest.raises(ConfigError, match=message):
            PARTITIONS[name](toy(np.arange(100) % 4, 4), 2, rng(), **bad)


class TestIid:
    def test_sizes_differ_by_at_most_one(self):
        groups = PARTITIONS["iid"](toy(np.arange(103) % 4, 4), 10, rng())
        assert sorted(Counter(groups.sizes.tolist()).items()) == [(10, 7), (11, 3)]

    def test_one_client_gets_all_and_too_many_are_refused(self):
        assert PARTITIONS["iid"](toy([0, 1], 2), 1, rng())[0].tolist() == [0, 1]
        with pytest.raises(ConfigError, match=r"3 clients .* there are 2; ask for at most 2"):
            PARTITIONS["iid"](toy([0, 1], 2), 3, rng())

    def test_a_hundred_thousand_clients(self):
        labels = rng().integers(0, 10, 1_000_000)
        start = time.perf_counter()
        groups = PARTITIONS["iid"](toy(labels, 10), 100_000, rng())
        assert time.perf_counter() - start < 5
        assert set(groups.sizes.tolist()) == {10}
        assert np.array_equal(np.sort(groups.order), np.arange(1_000_000))

    def test_labels_are_mixed(self):
        groups = PARTITIONS["iid"](toy(MNIST, 10), 2, rng())
        # 3371 expected of class 1, standard deviation below 41
        assert abs(counts_of(groups, MNIST, 10)[0, 1] - 3371) < 5 * 41


class TestShards:
    def test_class_shards_of_mnist(self):
        groups = PARTITIONS["class_shards"](toy(MNIST, 10), 100, rng())
        assert_disjoint(groups, 60_000)
        counts = counts_of(groups, MNIST, 10)
        class_sizes = np.bincount(MNIST)
        shards = counts / (class_sizes / 20)  # close to 0, 1 or 2 shards of each class
        assert np.abs(shards - shards.round()).max() < 0.01
        assert (shards.round().sum(axis=1) == 2).all()
        assert (shards.round().sum(axis=0) == 20).all()
        assert (counts <= np.ceil(class_sizes / 20) * shards.round()).all()
        # two random ones of 200 are of one class with probability 19 / 199: 9.5 of 100 clients expected
        assert 1 <= (shards.round().max(axis=1) == 2).sum() <= 22

    def test_five_hundred_clients_on_a_hundred_classes(self):
        labels = np.arange(50_000) % 100
        groups = PARTITIONS["class_shards"](toy(labels, 100), 500, rng(), shards_per_class=10)
        assert set(groups.sizes.tolist()) == {100}

    def test_misfits_are_refused_with_a_way_out(self):
        data = toy(np.arange(400) % 10, 10)
        with pytest.raises(ConfigError, match=r"200 shards, but 10 clients of 2 take 20; set shards_per_class = 2"):
            PARTITIONS["class_shards"](data, 10, rng())
        with pytest.raises(ConfigError, match="take 2000; set shards_per_class = 200 or"):
            PARTITIONS["class_shards"](data, 1000, rng())
        groups = PARTITIONS["class_shards"](data, 10, rng(), leave_unused=True)
        assert set(groups.sizes.tolist()) == {4}
        assert_disjoint(groups, 400, all_used=False)
        with pytest.raises(DataError, match="class 0 has 40 samples and cannot be cut into 50"):
            PARTITIONS["class_shards"](data, 250, rng(), shards_per_class=50)

    def test_leaving_shards_out_is_a_way_out_of_too_many_only(self):
        data = toy(np.arange(400) % 10, 10)
        with pytest.raises(ConfigError, match=r"so that they fit, or leave_unused = true to leave the others out$"):
            PARTITIONS["class_shards"](data, 10, rng())
        with pytest.raises(ConfigError, match=r"so that they fit$"):
            PARTITIONS["class_shards"](data, 1000, rng(), leave_unused=True)

    def test_the_smallest_class_must_have_a_sample_for_every_shard(self):
        with pytest.raises(DataError, match="class 1 has 3 samples and cannot be cut into 4 shards"):
            PARTITIONS["class_shards"](toy([0] * 9 + [1] * 3 + [2] * 5, 3), 6, rng(), shards_per_class=4)
        just = PARTITIONS["class_shards"](toy([0] * 9 + [1] * 4 + [2] * 5, 3), 6, rng(), shards_per_class=4)
        assert_disjoint(just, 18)

    def test_shards_are_numbered_by_class_and_dealt_in_the_drawn_order(self, monkeypatch):
        monkeypatch.setattr("accord.data.partitions.shards.shuffled_within", lambda groups, rng: groups)
        drawn = SimpleNamespace(permutation=lambda count: np.array([3, 0, 4, 1, 5, 2])[:count])
        # six shards of two: a, a, b, b, c, c; client 0 gets 3 and 0, client 1 gets 4 and 1, client 2 gets 5 and 2
        groups = PARTITIONS["class_shards"](toy(np.repeat([0, 1, 2], 4), 3), 3, drawn, shards_per_class=2)
        assert [groups[k].tolist() for k in range(3)] == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]

    def test_shards_left_over_are_nobodys(self):
        drawn = SimpleNamespace(permutation=lambda count: np.array([3, 0, 4, 1, 2])[:count])
        assert hand_out(5, 2, 2, drawn).tolist() == [0, 1, -1, 0, 1]

    def test_sorted_shards_of_mnist(self):
        labels = np.random.default_rng(1).permutation(MNIST)
        groups = PARTITIONS["sorted_shards"](toy(labels, 10), 100, rng())
        assert_disjoint(groups, 60_000)
        assert set(groups.sizes.tolist()) == {600}
        # the sorted position of every sample; a client holds two runs of 300 that start at multiples of 300
        place = np.empty(60_000, dtype=int)
        place[sorted(range(60_000), key=lambda i: (labels[i], i))] = np.arange(60_000)
        for client in range(100):
            runs = np.sort(place[groups[client]]).reshape(2, 300)
            assert (runs[:, 0] % 300 == 0).all()
            assert (np.diff(runs, axis=1) == 1).all()

    def test_more_shards_than_samples(self):
        with pytest.raises(ConfigError, match="need 12 shards, but there are 10 samples; ask for at most 5"):
            PARTITIONS["sorted_shards"](toy(np.arange(10) % 2, 2), 6, rng())
        just = PARTITIONS["sorted_shards"](toy(np.arange(10) % 2, 2), 5, rng())
        assert just.sizes.tolist() == [2] * 5


class TestIdentities:
    def test_pieces_are_numbered_by_identity_and_dealt_in_the_drawn_order(self, monkeypatch):
        monkeypatch.setattr("accord.data.partitions.identities.shuffled_within", lambda groups, rng: groups)
        drawn = SimpleNamespace(permutation=lambda count: np.array([2, 0, 1, 5, 4, 3])[:count])
        # identities 0, 2 and 3 in two pieces of two each; the piece's place in the draw, modulo 4 clients: 2 0 1 1 0 3
        groups = PARTITIONS["identities"](toy(np.repeat([0, 2, 3], 4), 5), 4, drawn, pieces=2)
        assert [groups[k].tolist() for k in range(4)] == [[2, 3, 8, 9], [4, 5, 6, 7], [0, 1], [10, 11]]

    def test_clients_have_as_many_identities_as_one_another(self):
        labels = np.arange(90) % 9
        for seed in range(5):
            groups = PARTITIONS["identities"](toy(labels, 9), 3, rng(seed))
            assert [len(set(labels[groups[k]].tolist())) for k in range(3)] == [3, 3, 3]
            assert_disjoint(groups, 90)


class TestLabelSplit:
    @pytest.mark.parametrize(
        ("clients", "how", "expected"),
        [
            (2, "even_odd", [{0, 2, 4, 6, 8}, {1, 3, 5, 7, 9}]),
            (2, "halves", [{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}]),
            (3, "even_odd", [{0, 3, 6, 9}, {1, 4, 7}, {2, 5, 8}]),
            (3, "halves", [{0, 1, 2, 3}, {4, 5, 6}, {7, 8, 9}]),
        ],
    )
    def test_classes(self, clients, how, expected):
        labels = np.arange(50) % 10
        groups = PARTITIONS["label_split"](toy(labels, 10), clients, rng(), groups=how)
        assert [set(labels[groups[k]].tolist()) for k in range(clients)] == expected
        assert_disjoint(groups, 50)

    def test_too_many_clients_and_absent_classes(self):
        with pytest.raises(ConfigError, match="at most 10 clients, not 11"):
            PARTITIONS["label_split"](toy(np.arange(50) % 10, 10), 11, rng())
        with pytest.raises(DataError, match=r"leaves 5 of 10 clients without samples \(clients 5, 6, 7, 8, 9\)"):
            PARTITIONS["label_split"](toy(np.arange(50) % 5, 10), 10, rng())


class TestDirichlet:
    @given(st.integers(0, 10_000), st.integers(1, 12), st.sampled_from([0.01, 0.1, 1.0, 100.0]), st.booleans())
    @settings(deadline=None, max_examples=40)
    def test_minimum_always_holds(self, seed, clients, alpha, balance):
        labels = rng(seed).integers(0, 5, 120)
        groups = PARTITIONS["dirichlet"](toy(labels, 5), clients, rng(seed), alpha=alpha, min_size=10, balance=balance)
        assert groups.sizes.min() >= 10
        assert_disjoint(groups, 120)

    @pytest.mark.parametrize("alpha", [1e-6, 0.01, 0.1, 0.5])
    def test_five_hundred_clients_on_a_hundred_classes_end(self, alpha):
        labels = np.arange(50_000) % 100
        start = time.perf_counter()
        groups = PARTITIONS["dirichlet"](toy(labels, 100), 500, rng(), alpha=alpha)
        assert time.perf_counter() - start < 10
        assert groups.sizes.min() >= 10
        assert_disjoint(groups, 50_000)

    def test_minimum_that_leaves_no_choice(self):
        groups = PARTITIONS["dirichlet"](toy(np.arange(100) % 4, 4), 10, rng(), alpha=0.1, min_size=10)
        assert set(groups.sizes.tolist()) == {10}

    def test_impossible_minimum(self):
        with pytest.raises(ConfigError, match=r"need 110 samples, but there are 100; .* min_size \(at most 9\)"):
            PARTITIONS["dirichlet"](toy(np.arange(100) % 4, 4), 11, rng())

    def test_counts_are_the_cut_running_sums(self, monkeypatch):
        draws = iter([np.array([0.5, 0.25, 0.25]), np.array([0.1, 0.0, 0.9])])
        monkeypatch.setattr(dirichlet, "dirichlet_draw", lambda alpha, rng: next(draws))
        counts = dirichlet_counts(np.array([9, 0, 5]), 3, 0.5, False, rng())
        # class 0: cuts at 4.5 and 6.75; class 1 is empty and draws nothing; class 2: cuts at 0.5 and 0.5
        assert counts.tolist() == [[4, 0, 0], [2, 0, 0], [3, 0, 5]]

    def test_full_clients_get_no_more(self, monkeypatch):
        drawn = []

        def draw(alpha, rng):
            drawn.append(len(alpha))
            return np.array([0.5, 0.5, 0.0])[: len(alpha)] if len(alpha) == 3 else np.array([1.0])

        monkeypatch.setattr(dirichlet, "dirichlet_draw", draw)
        # 12 samples, 3 clients: full at 4. Class 0 gives 4, 4, 0; class 1 can only go to client 2.
        counts = dirichlet_counts(np.array([8, 4]), 3, 0.5, True, rng())
        assert counts.tolist() == [[4, 0], [4, 0], [0, 4]]
        assert drawn == [3, 1]

    def test_a_client_one_short_of_full_gets_more(self, monkeypatch):
        draws = iter([np.array([0.375, 0.5, 0.125]), np.array([0.5, 0.5])])
        monkeypatch.setattr(dirichlet, "dirichlet_draw", lambda alpha, rng: next(draws))
        # 12 samples, 3 clients: full at 4. Class 0 gives 3, 4, 1; class 1 goes to clients 0 and 2.
        counts = dirichlet_counts(np.array([8, 4]), 3, 0.5, True, rng())
        assert counts.tolist() == [[3, 2], [4, 0], [1, 2]]

    def test_what_a_draw_lacks_is_counted_over_all_classes(self, monkeypatch):
        first = [[1, 0], [1, 2], [1, 2], [5, 4]]  # sizes 1, 3, 3, 9: two samples short of three each
        draws = iter([first, [[0, 0], [2, 3], [2, 3], [4, 2]], [[0, 0], [0, 0], [0, 0], [8, 8]]])
        monkeypatch.setattr(dirichlet, "REDRAWS", 3)
        monkeypatch.setattr(dirichlet, "dirichlet_counts", lambda *_: np.array(next(draws)))
        seen = []
        monkeypatch.setattr(dirichlet, "top_up", lambda owner, *_: seen.append(np.bincount(owner).tolist()) or owner)
        PARTITIONS["dirichlet"](toy(np.arange(16) % 2, 2), 4, rng(), min_size=3)
        assert seen == [[1, 3, 3, 9]]

    def test_alpha_moves_from_skewed_to_even(self):
        labels = np.arange(10_000) % 10

        def largest_share(alpha):
            groups = PARTITIONS["dirichlet"](toy(labels, 10), 10, rng(), alpha=alpha)
            return (counts_of(groups, labels, 10) / 1000).max(axis=0).mean()

        assert largest_share(0.05) > 0.6
        assert largest_share(1000.0) < 0.13


class TestLda:
    @pytest.mark.parametrize("prior", [True, False])
    def test_equal_sizes_and_remainder_unused(self, prior):
        labels = np.arange(1003) % 10
        groups = PARTITIONS["lda"](toy(labels, 10), 10, rng(), prior=prior)
        assert set(groups.sizes.tolist()) == {100}
        assert_disjoint(groups, 1003, all_used=False)

    def test_all_used_when_it_divides_and_absent_classes(self):
        labels = np.arange(1000) % 3
        groups = PARTITIONS["lda"](toy(labels, 10), 10, rng(), alpha=1e-6)
        assert_disjoint(groups, 1000)

    def test_five_hundred_clients_on_a_hundred_classes(self):
        labels = np.arange(50_000) % 100
        groups = PARTITIONS["lda"](toy(labels, 100), 500, rng())
        assert set(groups.sizes.tolist()) == {100}
        assert_disjoint(groups, 50_000)

    @pytest.mark.parametrize(("prior", "alpha"), [(True, 3.0), (False, 0.7)])
    def test_same_distribution_as_drawing_one_by_one(self, prior, alpha):
        left, size, repeats = np.array([3, 6, 2]), 7, 4000

        def one_by_one(generator):
            p = left / left.sum() if prior else np.ones(3)
            q = generator.dirichlet(alpha * p)
            taken = np.zeros(3, dtype=int)
            for _ in range(size):
                q = np.where(taken < left, q, 0)
                c = np.searchsorted(np.cumsum(q / q.sum()), generator.random(), side="right")
                taken[min(c, 2)] += 1
            return taken

        ours = np.array([lda_client(left, size, alpha, prior, rng([1, i])) for i in range(repeats)])
        reference = np.array([one_by_one(rng([2, i])) for i in range(repeats)])
        assert (ours.sum(axis=1) == size).all()
        assert (ours <= left).all()
        for power in (1, 2):
            gap = (ours**power).mean(axis=0) - (reference**power).mean(axis=0)
            noise = np.sqrt(((ours**power).var(axis=0) + (reference**power).var(axis=0)) / repeats)
            assert (np.abs(gap) < 4.5 * noise).all()

    def test_prior_makes_the_paper_setting_nearly_one_class_per_client(self):
        groups = PARTITIONS["lda"](toy(MNIST, 10), 10, rng(), alpha=0.1)
        first = counts_of(groups, MNIST, 10)[0]
        assert np.sort(first)[-2:].sum() > 0.95 * 6000

    def test_more_clients_than_samples(self):
        with pytest.raises(ConfigError, match="ask for at most 4"):
            PARTITIONS["lda"](toy([0, 1, 0, 1], 2), 5, rng())


class TestQuantity:
    def test_power_law_sizes_by_hand(self):
        groups = PARTITIONS["quantity"](toy(np.arange(140) % 2, 2), 3, rng(), spread=1.0, min_size=10)
        # 110 left, weights 1, 1/2, 1/3 of 11/6: 60, 30, 20
        assert all(abs(a - b) <= 1 for a, b in zip(sorted(groups.sizes.tolist()), [30, 40, 70], strict=True))
        assert_disjoint(groups, 140)

    def test_labels_are_mixed(self):
        labels = np.repeat([0, 1], 500)
        counts = counts_of(PARTITIONS["quantity"](toy(labels, 2), 2, rng(), spread=0.0), labels, 2)
        # 250 expected of each class, standard deviation below 8
        assert np.abs(counts - 250).max() < 40

    def test_impossible_minimum(self):
        for law in ("power", "lognormal"):
            with pytest.raises(ConfigError, match=r"need 30 samples, but there are 29; .* min_size \(at most 9\)"):
                PARTITIONS["quantity"](toy(np.arange(29) % 2, 2), 3, rng(), law=law)
            assert PARTITIONS["quantity"](toy(np.arange(30) % 2, 2), 3, rng(), law=law).sizes.tolist() == [10] * 3

    def test_lognormal_sizes_by_hand(self):
        class Drawn:
            permutation = staticmethod(rng().permutation)

            def standard_normal(self, count):
                assert count == 4
                return np.array([0.0, 2.0, -1.0, 1.0])

        data = toy(np.arange(190) % 2, 2)
        groups = PARTITIONS["quantity"](data, 4, Drawn(), law="lognormal", spread=float(np.log(2)), min_size=10)
        # 150 left, weights 1, 4, 1/2, 2 of 7.5: 20, 80, 10, 40
        assert all(abs(a - b) <= 1 for a, b in zip(groups.sizes.tolist(), [30, 90, 20, 50], strict=True))
        assert_disjoint(groups, 190)

    def test_lognormal_sizes_have_its_moments(self):
        groups = PARTITIONS["quantity"](toy(np.zeros(500_000), 1), 2000, rng(), law="lognormal", spread=0.5, min_size=1)
        logs = np.log(groups.sizes - 1)
        assert abs(logs.std() - 0.5) < 0.03
        assert abs(np.mean(groups.sizes - 1) / np.median(groups.sizes - 1) - np.exp(0.125)) < 0.04

    @pytest.mark.parametrize("law", ["power", "lognormal"])
    def test_no_spread_is_equal_and_large_spread_is_not(self, law):
        data = toy(np.arange(1000) % 2, 2)
        even = PARTITIONS["quantity"](data, 10, rng(), law=law, spread=0.0)
        skewed = PARTITIONS["quantity"](data, 10, rng(), law=law, spread=10.0)
        assert set(even.sizes.tolist()) == {100}
        assert skewed.sizes.min() == 10
        assert skewed.sizes.max() > 700
        assert_disjoint(skewed, 1000)


class TestGiven:
    def test_domains_like_pacs(self):
        labels = np.tile(np.arange(7), 8)
        domains = np.repeat(np.arange(4), 14)
        groups = PARTITIONS["domains"](toy(labels, 7, domains=domains), 8, rng())
        for client in range(8):
            assert set(domains[groups[client]].tolist()) == {client // 2}
            assert set(labels[groups[client]].tolist()) == ({4, 5, 6} if client % 2 else {0, 1, 2, 3})
        assert_disjoint(groups, 56)

    def test_domains_that_do_not_fit(self):
        data = toy(np.arange(56) % 7, 7, domains=np.arange(56) % 4)
        with pytest.raises(ConfigError, match=r"are 8 clients, not 12; set clients = 8 or clients_per_domain = 3"):
            PARTITIONS["domains"](data, 12, rng())
        with pytest.raises(ConfigError, match="at most 7"):
            PARTITIONS["domains"](data, 32, rng(), clients_per_domain=8)
        with pytest.raises(DataError, match="has no domains"):
            PARTITIONS["domains"](toy([0, 1], 2), 2, rng())
        with pytest.raises(DataError, match="one whole number"):
            PARTITIONS["domains"](toy([0, 1], 2, domains=np.array([0])), 2, rng())

    def test_natural(self):
        data = toy([0, 1, 0, 1], 2, clients=np.array([3, 0, 3, 1]))
        groups = PARTITIONS["natural"](data, 4, rng())
        assert [groups[k].tolist() for k in range(4)] == [[1], [3], [], [0, 2]]
        with pytest.raises(ConfigError, match="has 4 natural clients; set clients = 4, not 3"):
            PARTITIONS["natural"](data, 3, rng())
        with pytest.raises(DataError, match="has no natural clients"):
            PARTITIONS["natural"](toy([0, 1], 2), 2, rng())
