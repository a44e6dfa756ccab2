"""Divisions, splits and transforms where a small slip would go unseen: every expected value worked out by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from accord.core.fields import Field, Fields
from accord.data import splits
from accord.data.checks import check_clients, check_dataset, check_ids, labels_of
from accord.data.dealing import deal, enough, top_up
from accord.data.description import describe
from accord.data.division import Arrangement, arrangement, federate, kinds, limited
from accord.data.federated import Dataset, FederatedData, Groups, Pool, Search
from accord.data.inputs import Inputs
from accord.data.partitions import PARTITIONS, dirichlet
from accord.data.streams import stream
from accord.data.transforms import cropping, make_transform, rotation
from accord.data.transforms.cropping import CropFlip
from accord.data.transforms.registry import black
from accord.data.transforms.rotation import Rotate
from accord.errors import ConfigError, DataError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def toy(labels: Any, classes: int = 2, tests: Any = None, **more: Any) -> Dataset:
    """Samples whose only input is their position, 0, 1, ...; those of the test part are counted from 1000."""
    y = torch.as_tensor(np.asarray(labels, dtype=np.int64))
    other = y if tests is None else torch.as_tensor(np.asarray(tests, dtype=np.int64))
    train = Pool(torch.arange(len(y), dtype=torch.float32).view(-1, 1), y)
    test = Pool(1000 + torch.arange(len(other), dtype=torch.float32).view(-1, 1), other)
    return Dataset("toy", train, test, tuple("abcdefghij"[:classes]), **more)


def lists(groups: Groups) -> list[list[int]]:
    return [groups[k].tolist() for k in range(len(groups))]


# ------------------------------------------------------------------------------------------- from data to federation


def test_the_samples_of_a_limit_keep_their_clients_domains_order_and_pixels() -> None:
    position = np.arange(40)
    data = toy(position % 4, 4, train_clients=position // 10, train_domains=position % 7)
    data = replace(data, train=replace(data.train, mean=(3.0,), std=(2.0,)))
    few = limited(data, 15, rng(), [])
    kept = few.train.x[:, 0].long().numpy()
    assert len(kept) == 15
    assert kept.tolist() == sorted(kept.tolist()), "in the order of the data set"
    assert few.train_clients is not None
    assert few.train_domains is not None
    assert few.train_clients.tolist() == (kept // 10).tolist()
    assert few.train_domains.tolist() == (kept % 7).tolist()
    assert few.train.y.tolist() == (kept % 4).tolist()
    assert (few.train.mean, few.train.std, few.test) == ((3.0,), (2.0,), data.test)
    assert len(limited(data, np.int64(5), rng(), []).train) == 5  # type: ignore[arg-type]


def test_a_limit_leaves_the_clients_the_data_names() -> None:
    """All forty are counted, though of fifteen samples some client may have none; what is left has all its owners."""
    data = toy(np.arange(40) % 2, train_clients=np.arange(40), test_clients=np.arange(40))
    few = federate(data, limit=15)
    assert len(few) == 40
    assert few.sizes.sum() == 15
    assert few.note == "15 of 40 training samples used; 25 of 40 clients have no training samples"


def test_samples_kept_for_test_and_validation_are_not_with_nobody() -> None:
    data = toy(np.arange(23) % 2)
    more: dict[str, Any] = {"clients": 4, "partition": "lda", "validation": 0.2}
    assert federate(data, test="holdout", **more).note == "3 training samples are with no client"
    assert federate(data, test="shared", **more).note == "3 training samples are with no client"
    assert federate(data, clients=4, partition="iid", test="holdout", validation=0.2).note == ""


@pytest.mark.parametrize("test", ["matching", "shared", "natural", "holdout"])
def test_local_test_samples_are_of_the_test_part_unless_held_out(test: Any) -> None:
    ids = np.arange(24) % 3
    data = federate(
        toy(np.arange(24) % 2, train_clients=ids, test_clients=ids[:12], tests=np.arange(12) % 2), test=test
    )
    assert data.test_from == ("train" if test == "holdout" else "test")
    for client in range(3):
        seen = data.client(client, "test")[0].flatten().tolist()
        assert len(seen) == {"matching": 4, "shared": 12, "natural": 4, "holdout": 2}[test]
        assert {value >= 1000 for value in seen} == {test != "holdout"}
        assert all(value < 1000 for value in data.client(client)[0].flatten().tolist())
    if test == "natural":
        assert lists(data.test) == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]


def test_a_holdout_that_is_wished_for_needs_no_remark_and_one_that_is_not_says_its_share() -> None:
    ids = np.arange(20) % 2
    labels = np.arange(20) % 2
    named = toy(labels, train_clients=ids, test_clients=ids)
    assert federate(named, test="holdout").note == ""
    half = federate(replace(named, test_clients=None), holdout=0.5)
    assert half.note == "the test data names no clients: each is tested on 50 % of its own samples"
    assert half.test.sizes.tolist() == [5, 5]
    assert federate(toy(labels, tests=[], train_clients=ids)).note == "", "there is no test data that could name them"
    assert federate(replace(named, test_clients=None), partition="iid", clients=2, test="holdout").note == ""


def test_all_that_is_known_of_a_data_set_is_known_of_its_division() -> None:
    raw, fields = Inputs("array", (1,)), Fields((Field("age", (1,)),))
    search = Search(1, np.zeros(6, dtype=np.int64))
    data = toy(np.arange(6) % 2, raw=raw, fields=fields, search=search, note="small", client_names=("x", "y"))
    data = replace(data, train_clients=np.arange(6) % 2)
    divided = federate(data, test="shared", unseen=1)
    assert (divided.raw, divided.fields, divided.search) == (raw, fields, search)
    assert (divided.classes, divided.num_classes, divided.names) == (("a", "b"), 2, ("x", "y"))
    assert (divided.name, divided.note, divided.problem) == ("toy", "small", "classification")
    assert (divided.train_pool, divided.test_pool) == (data.train, data.test)
    assert divided.inputs is raw
    facts = divided.facts
    assert (facts.sample_shape, facts.num_classes, facts.sizes.tolist()) == ((1,), 2, [3, 3])
    assert (facts.unseen, facts.problem, facts.fields, facts.vocabulary) == (
        divided.unseen,
        "classification",
        fields,
        0,
    )
    assert len(divided.unseen) == 1
    amounts = replace(data, problem="regression", classes=("price",), fields=None)
    amounts = replace(
        amounts, train=replace(data.train, y=torch.zeros(6, 1)), test=replace(data.test, y=torch.ones(6, 1))
    )
    assert federate(amounts).problem == federate(amounts).facts.problem == "regression"


def test_labels_of_the_test_part_are_checked_even_where_no_client_is_tested_on_them() -> None:
    with pytest.raises(DataError, match="1 labels of the test part are not class numbers"):
        federate(toy([0, 1] * 8, tests=[0, 2]), clients=2, test="holdout", partition="iid")


def test_more_clients_than_samples_are_refused_for_named_clients_too() -> None:
    with pytest.raises(ConfigError, match="5 clients cannot share 4 training samples"):
        federate(toy([0, 1, 0, 1], train_clients=np.array([0, 1, 2, 0])), clients=5, test="holdout")


def test_what_is_open_of_a_natural_division_without_names() -> None:
    assert arrangement(None, "natural") == Arrangement("natural", 20, "holdout")
    assert arrangement(toy([0, 1]), "natural") == Arrangement("natural", 20, "holdout")
    tested = toy([0, 1], train_clients=np.array([0, 1]), test_clients=np.array([0, 1]))
    assert arrangement(tested, "natural", 5) == Arrangement("natural", 5, "natural")


def test_samples_without_a_class_match_by_their_domain_alone() -> None:
    y, z = torch.zeros(3, 2), torch.ones(2, 2)
    domains: dict[str, Any] = {"train_domains": np.array([1, 0, 1]), "test_domains": np.array([0, 1])}
    data = Dataset("toy", Pool(y, y), Pool(z, z), ("p", "q"), problem="multilabel")
    assert [part.tolist() for part in kinds(data)] == [[0, 0, 0], [0, 0]]
    found = [part.tolist() for part in kinds(replace(data, **domains))]
    assert [len(set(part)) for part in found] == [2, 2]
    assert found[0][0] == found[0][2] == found[1][1]
    assert found[0][1] == found[1][0]


# --------------------------------------------------------------------------------------------------- federated data


def federation(**more: Any) -> FederatedData:
    pools = [Pool(torch.arange(n, n + 8.0).view(-1, 1), torch.arange(8) % 2) for n in (0, 100)]
    parts = (Groups.of([[0, 5], [2]]), Groups.of([[1], [3]]), Groups.of([[7, 4], [6]]))
    return FederatedData("toy", pools[0], pools[1], 2, *parts, **more)


@pytest.mark.parametrize("test_from", ["train", "test"])
def test_a_transform_is_told_the_client_and_the_places_in_the_pool(test_from: Any) -> None:
    told: list[Any] = []

    def change(client: int, index: Any, x: torch.Tensor) -> torch.Tensor:
        told.append((client, index.tolist(), x.flatten().tolist()))
        return -x

    data = federation(transform=change, test_from=test_from)
    first = 100.0 if test_from == "test" else 0.0
    for split, client, index, x in (
        ("train", 0, [0, 5], [0.0, 5.0]),
        ("train", 1, [2], [2.0]),
        ("validation", 1, [3], [3.0]),
        ("test", 0, [7, 4], [first + 7, first + 4]),
    ):
        seen, labels = data.client(client, split)  # type: ignore[arg-type]
        assert told.pop() == (client, index, x)
        assert seen.flatten().tolist() == [-value for value in x]
        assert labels.tolist() == [place % 2 for place in index]


@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_every_part_lists_the_same_clients(part: str) -> None:
    with pytest.raises(DataError, match="train, validation and test must list the same clients; got"):
        replace(federation(), **{part: Groups.of([[0]])})


def test_both_pools_move_to_a_device_with_their_pixels_measured_as_before() -> None:
    data = federation()
    data = replace(data, train_pool=replace(data.train_pool, mean=(1.0,), std=(2.0,)))
    moved = data.on(torch.device("meta"))
    for pool in (moved.train_pool, moved.test_pool):
        assert (pool.x.device.type, pool.y.device.type) == ("meta", "meta")
    assert (moved.train_pool.mean, moved.train_pool.std, moved.test_pool.mean) == ((1.0,), (2.0,), ())
    assert moved.train is data.train


def test_tokens_are_counted_where_there_is_no_test_part() -> None:
    x, y = torch.tensor([[3, 1], [0, 2]]), torch.tensor([0, 1])
    data = FederatedData("toy", Pool(x, y), Pool(x[:0], y[:0]), 2, *[Groups.of([[0, 1]])] * 3)
    assert data.vocabulary == data.facts.vocabulary == 4


def test_bytes_are_shares_of_255_and_other_whole_numbers_are_left_alone() -> None:
    pixels = torch.tensor([[[[0]]], [[[255]]], [[[51]]]], dtype=torch.uint8)
    seen, labels = Pool(pixels, torch.tensor([4, 5, 6]), (0.2,), (0.4,)).take(np.array([2, 0]))
    assert seen.flatten().tolist() == pytest.approx([0.0, -0.5])
    assert labels.tolist() == [6, 4]
    assert pixels.flatten().tolist() == [0, 255, 51]
    tokens = Pool(torch.tensor([[255], [7]]), torch.tensor([0, 1])).take(np.array([0]))[0]
    assert (tokens.dtype, tokens.tolist()) == (torch.int64, [[255]])


# ------------------------------------------------------------------------------------------------- splits, dealing


def drawn(**given: Any) -> Any:
    return SimpleNamespace(**given)


def test_a_stratum_is_shuffled_before_every_second_of_it_is_set_aside() -> None:
    backwards = drawn(permutation=lambda n: np.arange(n)[::-1], random=lambda: 0.0)
    assert splits.stratified(np.zeros(6, np.int64), 0.5, backwards)[1].tolist() == [1, 3, 5]


def test_samples_are_sorted_by_stratum_first_and_then_by_what_they_are_spread_over() -> None:
    plain = drawn(permutation=np.arange, random=lambda: 0.0)
    kept, aside = splits.stratified(np.array([0, 0, 1, 1]), 0.5, plain, np.array([1, 0, 1, 0]))
    assert (kept.tolist(), aside.tolist()) == ([0, 2], [1, 3])


def test_without_two_samples_of_anything_nothing_can_be_set_aside() -> None:
    with pytest.raises(DataError, match="no stratum has two samples"):
        splits.stratified(np.arange(5), 0.5, rng())


def block(positions: list[int]) -> bool:
    """Whether these are neighbours."""
    return max(positions) - min(positions) == len(positions) - 1


def test_which_samples_somebody_gets_is_random() -> None:
    """Of a hundred of one kind in order: nobody's fifty are fifty neighbours."""
    same = np.zeros(100, dtype=np.int64)
    tests = splits.matching(Groups.of([[0], [1]]), same[:2], same, rng())
    assert tests.sizes.tolist() == [50, 50]
    assert not block(tests[0].tolist())
    dealt = deal(same, np.array([[50], [50]]), rng())
    assert not block(np.flatnonzero(dealt == 0).tolist())
    moved = top_up(same, 2, 50, rng())
    assert np.bincount(moved).tolist() == [50, 50]
    assert not block(np.flatnonzero(moved == 1).tolist())
    for groups in (
        PARTITIONS["class_shards"](toy(same, 1), 2, rng(), shards_per_class=2, shards_per_client=1),
        PARTITIONS["identities"](toy(same, 1), 2, rng(), pieces=2),
    ):
        assert groups.sizes.tolist() == [50, 50]
        assert not block(groups[0].tolist())


def test_numbers_of_numpy_are_numbers() -> None:
    held = splits.holdout(Groups.of([range(8)]), np.float32(0.25), rng())[1]  # type: ignore[arg-type]
    assert held.sizes.tolist() == [2]
    assert held[0].tolist() == sorted(held[0].tolist())
    assert len(splits.unseen_clients(5, np.int64(2), rng())) == 2  # type: ignore[arg-type]
    assert type(check_clients(np.int32(3))) is int
    with pytest.raises(ConfigError, match="clients must be a whole number of at least 0, not -1"):
        check_clients(-1, least=0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((5, 6), "6 clients with at least 1 samples each need 6 samples, but there are 5; ask for at most 5 clients"),
        ((25, 3, 10), "but there are 25; ask for at most 2 clients or a smaller min_size (at most 8)"),
        ((2, 3, 10), "need 30 samples, but there are 2; ask for at most 0 clients"),
        ((3, 3, 2), "but there are 3; ask for at most 1 clients or a smaller min_size (at most 1)"),
    ],
)
def test_too_few_samples_are_refused_with_what_would_do(given: tuple[int, ...], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        enough(*given)
    assert str(caught.value).endswith(words)


def test_numbers_of_one_byte_become_whole_numbers_that_can_be_multiplied() -> None:
    pool = Pool(torch.zeros(2, 1), torch.tensor([0, 200], dtype=torch.uint8))
    assert (labels_of(pool, 201) * 20).tolist() == [0, 4000]
    assert (check_ids(np.array([0, 200], np.uint8), pool, "domains") * 20).tolist() == [0, 4000]
    with pytest.raises(DataError, match=r"must be whole numbers, not torch\.complex64"):
        labels_of(Pool(pool.x, torch.zeros(2, dtype=torch.complex64)), 2)


def test_what_is_no_data_set_is_named() -> None:
    with pytest.raises(ConfigError, match="data must be a data set, not a list: make one of your arrays"):
        check_dataset([1, 2])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="data must be a data set, not a dict"):
        federate({"x": 1})  # type: ignore[arg-type]


def test_a_stream_is_that_of_its_seed_its_purposes_check_sum_and_whose_it_is() -> None:
    """CRC-32 of "test" is d87f7e0c, on every machine and in every process."""
    expected = np.random.default_rng(np.random.SeedSequence([1, 0xD87F7E0C, 2, 3]))
    assert stream(1, "test", 2, 3).bit_generator.state == expected.bit_generator.state


# ------------------------------------------------------------------------------------------------------ description


def test_a_description_says_whose_it_is_of_what() -> None:
    data = federation(names=("x", "y"), classes=("no", "yes"))
    found = describe(data, "test")
    assert (found.name, found.split, found.clients, found.classes) == ("toy", "test", ("x", "y"), ("no", "yes"))
    assert found.counts.tolist() == [[1, 1], [1, 0]]
    amounts = describe(replace(data, problem="regression"), "test")
    assert (amounts.name, amounts.split, amounts.clients) == ("toy", "test", ("x", "y"))
    assert amounts.counts.tolist() == [[2], [1]]


def test_labels_that_are_no_classes_are_refused_by_the_split_they_are_of() -> None:
    data = federation()
    bad = replace(data, test_pool=Pool(data.test_pool.x, data.test_pool.y + 1))
    assert describe(bad).sizes.tolist() == [2, 1]
    with pytest.raises(DataError, match="4 labels of the test part"):
        describe(bad, "test")


# ------------------------------------------------------------------------------------------------------- partitions


@pytest.mark.parametrize("balance", [True, False])
def test_a_dirichlet_division_draws_with_all_its_settings(balance: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    generator = rng()

    def counts(sizes: Any, clients: int, alpha: float, balanced: bool, random: Any) -> Any:
        asked.append((sizes.tolist(), clients, alpha, balanced, random is generator))
        return np.array([[3, 1, 0], [1, 1, 0]])

    monkeypatch.setattr(dirichlet, "dirichlet_counts", counts)
    data = toy([0, 0, 0, 0, 1, 1], 3)
    groups = PARTITIONS["dirichlet"](data, 2, generator, alpha=0.7, min_size=2, balance=balance)
    assert asked == [([4, 2, 0], 2, 0.7, balance, True)]
    assert groups.sizes.tolist() == [4, 2]


def test_the_shares_of_a_class_are_drawn_with_the_asked_concentration(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(dirichlet, "dirichlet_draw", lambda a, rng: asked.append(a.tolist()) or np.array([0.5, 0.5]))
    assert dirichlet.dirichlet_counts(np.array([4, 2]), 2, 0.7, False, rng()).tolist() == [[2, 1], [2, 1]]
    assert asked == [[0.7, 0.7], [0.7, 0.7]]


@pytest.mark.parametrize("prior", [True, False])
def test_each_client_of_lda_draws_from_what_those_before_left(prior: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    generator = rng()

    def one(left: Any, size: int, alpha: float, by_prior: bool, random: Any) -> Any:
        asked.append((left.tolist(), size, alpha, by_prior, random is generator))
        return np.array([[2, 0], [1, 1], [0, 2]][len(asked) - 1])

    monkeypatch.setattr(dirichlet, "lda_client", one)
    labels = np.array([0, 1, 0, 1, 0, 1, 1])
    groups = PARTITIONS["lda"](toy(labels), 3, generator, alpha=0.7, prior=prior)
    assert asked == [([lefts, rights], 2, 0.7, prior, True) for lefts, rights in ((3, 4), (1, 4), (0, 3))]
    assert [sorted(labels[groups[k]].tolist()) for k in range(3)] == [[0, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize(("prior", "second"), [(True, [0.125, 0.3125]), (False, [0.5, 0.5])])
def test_where_all_classes_with_a_share_ran_out_the_others_are_drawn(
    prior: bool, second: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 1, 2 and 5 four are wanted, and the first draw gives all to class 0: three are left for the other two."""
    asked: list[Any] = []

    def draw(concentration: Any, rng: Any) -> Any:
        asked.append(concentration.tolist())
        return np.array([1.0, 0.0, 0.0]) if len(concentration) == 3 else np.array([0.25, 0.75])

    def multinomial(count: int, share: Any) -> Any:
        asked.append((count, share.tolist()))
        return np.array([count, 0, 0]) if share[0] else np.array([0, 1, 2])

    monkeypatch.setattr(dirichlet, "dirichlet_draw", draw)
    taken = dirichlet.lda_client(np.array([1, 2, 5]), 4, 0.5, prior, drawn(multinomial=multinomial))
    assert taken.tolist() == [1, 1, 2]
    assert asked[1:] == [(4, [1.0, 0.0, 0.0]), second, (3, [0.0, 0.25, 0.75])]


def test_ranks_of_a_power_law_are_dealt_at_random() -> None:
    draws = iter([lambda ranks: ranks[::-1], lambda owner: owner])
    data = toy(np.arange(110) % 2)
    groups = PARTITIONS["quantity"](data, 2, drawn(permutation=lambda it: next(draws)(it)), spread=2.0, min_size=30)
    # 50 left, in the ranks 2 and 1: weights 1/4 and 1, that is 10 and 40
    assert groups.sizes.tolist() == [40, 70]


def test_domains_may_be_shared_by_any_number_of_clients() -> None:
    labels, domains = np.tile(np.arange(7), 2), np.repeat([0, 1], 7)
    data = toy(labels, 7, train_domains=domains)
    groups = PARTITIONS["domains"](data, 6, rng(), clients_per_domain=3)
    assert lists(groups) == [[0, 1, 2], [3, 4], [5, 6], [7, 8, 9], [10, 11], [12, 13]]
    assert lists(PARTITIONS["domains"](data, 14, rng(), clients_per_domain=7)) == [[place] for place in range(14)]
    with pytest.raises(ConfigError, match=r"2 domains of 3 clients are 6 clients, not 5; set clients = 6$"):
        PARTITIONS["domains"](data, 5, rng(), clients_per_domain=3)


def test_a_class_for_every_client_is_enough_for_a_label_split() -> None:
    assert lists(PARTITIONS["label_split"](toy([2, 0, 1, 0], 3), 3, rng())) == [[1, 3], [2], [0]]
    assert lists(PARTITIONS["label_split"](toy([2, 0, 1, 0], 3), 3, rng(), groups="halves")) == [[1, 3], [2], [0]]


def test_shards_of_all_samples_are_as_many_as_asked_for() -> None:
    inorder = drawn(permutation=np.arange)
    data = toy([1, 0, 1, 0, 1, 0])
    assert lists(PARTITIONS["sorted_shards"](data, 2, inorder, shards_per_client=3)) == [[1, 3, 5], [0, 2, 4]]
    backwards = drawn(permutation=lambda n: np.arange(n)[::-1])
    assert lists(PARTITIONS["sorted_shards"](data, 6, backwards, shards_per_client=1)) == [[4], [2], [0], [5], [3], [1]]
    with pytest.raises(
        ConfigError, match=r"3 clients of 3 shards need 9 shards, .* 6 samples; ask for at most 2 clients"
    ):
        PARTITIONS["sorted_shards"](data, 3, inorder, shards_per_client=3)


def test_shards_of_a_class_go_to_as_many_as_asked_for() -> None:
    data = toy(np.repeat([0, 1], 6))
    groups = PARTITIONS["class_shards"](data, 2, rng(), shards_per_class=3, shards_per_client=3)
    assert groups.sizes.tolist() == [6, 6]
    with pytest.raises(
        ConfigError, match="6 shards, but 3 clients of 1 take 3; change clients or shards_per_client so"
    ):
        PARTITIONS["class_shards"](data, 3, rng(), shards_per_class=3, shards_per_client=1)


def test_clients_that_are_named_may_be_without_samples_when_nothing_is_said() -> None:
    data = toy([0, 1, 0], train_clients=np.array([2, 0, 2]))
    assert lists(PARTITIONS["auto"](data, 3, rng())) == [[1], [], [0, 2]]
    assert lists(PARTITIONS["natural"](data, 5, rng())) == [[1], [], [0, 2], [], []]


@pytest.mark.parametrize(
    "name",
    ["auto", "class_shards", "dirichlet", "domains", "identities", "label_split", "lda", "sorted_shards"],
)
def test_samples_without_a_class_are_dealt_only_by_those_that_need_none(name: str) -> None:
    y = torch.arange(40.0).view(-1, 1)
    data = Dataset("toy", Pool(y, y), Pool(y, y), ("price",), problem="regression", train_domains=np.arange(40) % 2)
    with pytest.raises(ConfigError, match="deals samples out by their class, and regression has no classes") as caught:
        PARTITIONS[name](data, 2, rng())
    able = set(str(caught.value).partition("(")[2].rstrip(")").split(", "))
    assert able >= {"auto", "natural", "iid", "quantity"}
    assert not able & {"class_shards", "dirichlet", "domains", "identities", "label_split", "lda", "sorted_shards"}
    named = replace(data, train_clients=np.arange(40) % 2)
    for other in ("auto", "natural", "iid", "quantity"):
        assert PARTITIONS[other](named, 2, rng()).sizes.sum() == 40


# ------------------------------------------------------------------------------------------------------- transforms


def pictures(test: tuple[float, float] = (0.1, 0.2), side: int = 8) -> Dataset:
    x, y = torch.zeros(6, 1, side, side), torch.arange(6) % 2
    return Dataset("toy", Pool(x, y, (0.5,), (0.25,)), Pool(x, y, test[:1], test[1:]), ("a", "b"))


def test_black_is_that_of_the_training_pixels() -> None:
    assert black(pictures(), "rotate") == (-2.0,)


def test_a_crop_has_its_padding_its_black_and_its_seed() -> None:
    change = make_transform("crop_flip", pictures(), 3, 7, {"padding": 2})
    assert change.transform == CropFlip(2, (-2.0,), 7)
    x = torch.rand(2, 1, 8, 8)
    assert change.environments[0].change(x) is x


@pytest.mark.parametrize("per", ["client", "image"])
def test_a_rotation_has_all_its_settings(per: Any) -> None:
    settings = {"step": -30.0, "count": 3, "per": per, "concentration": 0.5}
    change = make_transform("rotate", pictures(), 3, 7, settings)
    assert change.transform == Rotate((0.0, -30.0, -60.0), (-2.0,), per, 0.5, 7)
    assert [one.name for one in change.environments] == ["rotated by 0", "rotated by -30", "rotated by -60"]


def test_corners_are_black_where_every_image_has_an_angle_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rotate, "choice", lambda self, client, index: np.array([1, 0, 1]))
    x = torch.ones(3, 1, 8, 8)
    turned = Rotate((0.0, 45.0), (-2.0,), "image")(0, np.arange(3), x)
    assert turned[:, 0, 0, 0].tolist() == [-2.0, 1.0, -2.0]
    assert x.min() == 1.0, "what came in is left alone"


def test_each_image_has_the_draw_of_its_seed_purpose_client_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def numbers(seed: int, purpose: str, client: int, index: Any) -> Any:
        asked.append((seed, purpose, client, index.tolist()))
        return np.array([0.0, 0.999])

    monkeypatch.setattr(cropping, "per_image", numbers)
    monkeypatch.setattr(rotation, "per_image", numbers)
    CropFlip(1, (), 7)(3, np.array([9, 4]), torch.zeros(2, 1, 2, 2))
    Rotate((0.0, 90.0), (), "image", 1.0, 7)(3, np.array([9, 4]), torch.zeros(2, 1, 2, 2))
    assert asked == [(7, "crop", 3, [9, 4]), (7, "rotate image", 3, [9, 4])]
    streams: list[Any] = []
    monkeypatch.setattr(rotation, "stream", lambda *given: streams.append(given) or rng())
    monkeypatch.setattr(rotation, "dirichlet_draw", lambda concentration, random: concentration)
    assert Rotate((0.0, 90.0, 180.0), (), "image", 0.3, 7).shares(3).tolist() == [0.3] * 3
    assert streams == [(7, "rotate", 3)]


def test_inputs_of_several_kinds_are_not_permuted() -> None:
    fields = Fields((Field("age", (1,)), Field("ward", (2,))))
    with pytest.raises(ConfigError, match="the transform 'permute' would mix up the inputs age, ward"):
        make_transform("permute", replace(toy([0, 1]), fields=fields), 2)


def test_only_images_are_cropped_and_turned() -> None:
    for name in ("crop_flip", "rotate"):
        with pytest.raises(ConfigError, match=rf"the transform '{name}' needs images .* have shape \(1,\)"):
            make_transform(name, toy([0, 1]), 2)


def test_an_angle_without_a_share_is_nobodys_and_shares_end_where_the_next_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rotation, "per_image", lambda *given: np.array([0.0, 0.25, 0.5]))
    monkeypatch.setattr(Rotate, "shares", lambda self, client: np.array([0.0, 0.25, 0.75]))
    assert Rotate((0.0, 90.0, 180.0), per="image").choice(0, np.arange(3)).tolist() == [1, 2, 2]


def test_clients_have_other_crops_of_the_same_places() -> None:
    x = torch.arange(20.0 * 64).view(20, 1, 8, 8)
    places = np.arange(20)
    first = CropFlip(seed=1)(0, places, x)
    assert not torch.equal(CropFlip(seed=1)(1, places, x), first)
    assert not torch.equal(CropFlip(seed=2)(0, places, x), first)


# --------------------------------------------------------------------------------------------------- and some edges


@pytest.mark.parametrize(
    ("name", "key", "wrong"),
    [
        ("quantity", "min_size", 0),
        ("quantity", "spread", -0.1),
        ("domains", "clients_per_domain", 0),
        ("identities", "pieces", 0),
        ("class_shards", "shards_per_client", 0),
        ("sorted_shards", "shards_per_client", 0),
        ("lda", "alpha", 2e9),
        ("lda", "prior", 1),
        ("class_shards", "leave_unused", 1),
        ("crop_flip", "padding", 65),
        ("rotate", "step", 361.0),
        ("rotate", "step", -361.0),
        ("rotate", "count", 361),
        ("rotate", "concentration", 2e9),
    ],
)
def test_settings_beyond_their_bounds_are_refused(name: str, key: str, wrong: object) -> None:
    data = toy([0, 1] * 20, train_domains=np.arange(40) % 2)
    with pytest.raises(ConfigError, match=f"{key} = {re.escape(repr(wrong))}: must be"):
        PARTITIONS[name](data, 2, rng(), **{key: wrong}) if name in PARTITIONS else make_transform(
            name, pictures(), 2, settings={key: wrong}
        )


def test_an_identity_is_cut_by_its_own_number_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accord.data.partitions.identities.shuffled_within", lambda groups, rng: groups)
    inorder = drawn(permutation=np.arange)
    # three samples in two pieces are 2 and 1, two are 1 and 1
    groups = PARTITIONS["identities"](toy([0, 0, 0, 1, 1]), 4, inorder, pieces=2)
    assert lists(groups) == [[0, 1], [2], [3], [4]]
    with pytest.raises(ConfigError, match="2 identities in 2 pieces are too few for 5 clients; set pieces = 3, or use"):
        PARTITIONS["identities"](toy([0, 0, 0, 1, 1], 4), 5, inorder, pieces=2)


def test_shards_that_do_not_divide_differ_by_one() -> None:
    inorder = drawn(permutation=np.arange)
    # seven in four shards: the places 0 1, 2 3, 4 5 and 6 of the sorted samples
    groups = PARTITIONS["sorted_shards"](toy([1, 0, 1, 0, 1, 0, 0]), 2, inorder)
    assert lists(groups) == [[1, 3, 5, 6], [0, 2, 4]]


def test_names_of_test_clients_alone_name_nobody() -> None:
    data = toy(np.arange(40) % 2, test_clients=np.arange(40) % 3)
    assert arrangement(data) == Arrangement("dirichlet", 20, "matching")
    divided = federate(data, clients=2)
    assert (divided.division, divided.test_from, divided.test.sizes.sum()) == ("dirichlet", "test", 40)


def test_raw_samples_are_measured_as_those_of_training_unless_it_is_said_how() -> None:
    data = pictures()
    divided = federate(data, clients=2, partition="iid", test="shared")
    assert (data.inputs.mean, data.inputs.std, data.inputs.shape) == ((0.5,), (0.25,), (1, 8, 8))
    assert (divided.inputs.mean, divided.inputs.std, divided.inputs.shape) == ((0.5,), (0.25,), (1, 8, 8))
    raw = Inputs("array", (3,))
    assert replace(data, raw=raw).inputs is raw


def test_a_fraction_of_unseen_clients_is_one_of_those_the_data_names() -> None:
    ids = np.arange(40) % 8
    data = toy(np.arange(40) % 2, train_clients=ids, test_clients=ids)
    assert len(federate(data, unseen=0.5).unseen) == 4
    assert len(federate(data, unseen=7).unseen) == 7
    with pytest.raises(ConfigError, match="8 unseen of 8 clients leave none to train"):
        federate(data, unseen=8)
    permuted = federate(replace(data, train=replace(data.train, x=torch.zeros(40, 3))), transform="permute")
    assert [one.name for one in permuted.environments] == [f"client {k}" for k in range(8)]


def test_natural_clients_are_refused_with_the_number_that_would_do() -> None:
    ids = np.array([0, 1, 0, 1])
    named = toy([0, 1, 0, 1], train_clients=ids, client_names=("x", "y", "z"))
    with pytest.raises(ConfigError, match=r"'toy' names 3 clients: .*set clients = 3, not 2"):
        PARTITIONS["natural"](named, 2, rng())
    assert lists(PARTITIONS["natural"](named, 3, rng())) == [[0, 2], [1, 3], []]


def test_a_matching_test_follows_all_a_client_has_not_what_is_left_for_training() -> None:
    """One of two clients has a single sample of class 1, and may lose it to validation: its test has class 1 still."""
    labels = np.array([0, 0, 0, 1])
    data = toy(labels, tests=[0, 1, 1], train_clients=np.zeros(4, np.int64))
    for seed in range(8):
        divided = federate(data, test="matching", validation=0.7, seed=seed)
        assert divided.train.sizes.tolist() == [1]
        assert divided.test[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("crop_flip", {"padding": 0}),
        ("crop_flip", {"padding": 64}),
        ("rotate", {"step": 360.0, "count": 360, "concentration": 1e9}),
        ("rotate", {"step": -360.0, "count": 1, "concentration": 1e-6}),
        ("permute", {"environments": 1}),
    ],
)
def test_settings_at_their_bounds_are_taken(name: str, settings: dict[str, Any]) -> None:
    change = make_transform(name, pictures(), 2, settings=settings)
    assert len(change.environments) == settings.get("count", 1)
    assert change.transform is not None
    assert change.transform(1, np.arange(6), torch.zeros(6, 1, 8, 8)).shape == (6, 1, 8, 8)


def test_an_image_under_a_wide_padding_may_be_black_all_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cropping, "per_image", lambda *given: np.array([0.0, 0.5]))
    # of 2 x 5 x 5 choices number 0 is the upper left place, and number 25 the middle one, mirrored
    seen = CropFlip(2, (-2.0,))(0, np.arange(2), torch.tensor([[1.0, 2.0], [3.0, 4.0]]).expand(2, 1, 2, 2))
    assert seen[0, 0].tolist() == [[-2.0, -2.0], [-2.0, -2.0]]
    assert seen[1, 0].tolist() == [[2.0, 1.0], [4.0, 3.0]]


def test_a_client_is_full_by_all_its_classes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three classes of four for three clients: the first two take half of each of two classes, and are full then."""
    asked: list[int] = []

    def draw(concentration: Any, _: Any) -> Any:
        asked.append(len(concentration))
        return np.array([0.5, 0.5, 0.0]) if len(concentration) == 3 else np.array([1.0])

    monkeypatch.setattr(dirichlet, "dirichlet_draw", draw)
    counts = dirichlet.dirichlet_counts(np.array([4, 4, 4]), 3, 0.5, True, np.random.default_rng(0))
    assert asked == [3, 3, 1]
    assert counts.tolist() == [[2, 2, 0], [2, 2, 0], [0, 0, 4]]
