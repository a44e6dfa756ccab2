"""Edges of what data may look like, one step to either side."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import accord
from accord.data import splits
from accord.data.checks import check_dataset, check_ids, check_labels, labels_of
from accord.data.dealing import in_proportion, top_up
from accord.data.division import check_enough, count_named, kinds
from accord.data.federated import Dataset, Groups, Pool
from accord.data.splits import holdout, shared, stratified, unseen_clients
from accord.data.transforms.registry import black
from accord.errors import ConfigError, DataError


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_byte_images_with_the_channels_last_are_refused(channels: int) -> None:
    y = np.arange(20) % 2
    with pytest.raises(DataError, match="channels last"):
        accord.from_arrays(np.zeros((20, 8, 8, channels), np.uint8), y)
    for shape in ((20, channels, 8, 8), (20, channels, 8, 3), (20, 8, 8, 2), (20, 8, 8, 5)):
        assert accord.from_arrays(np.zeros(shape, np.uint8), y).train.x.shape[1:] == shape[1:]


def dataset(labels: list[int], classes: int = 3, **pool: tuple[float, ...]) -> Dataset:
    y = torch.tensor(labels)
    made = Pool(torch.zeros(len(y), 1, 2, 2), y, **pool)
    return Dataset("toy", made, made, tuple("abcdef"[:classes]))


def test_labels_are_named_by_their_part() -> None:
    pool = Pool(torch.zeros(2, 1), torch.tensor([0, 3]))
    with pytest.raises(DataError, match=r"1 labels of the train part .* first is 3 at position 1; 3 classes"):
        labels_of(pool, 3)
    with pytest.raises(DataError, match="of the test part"):
        labels_of(pool, 3, "test")
    assert labels_of(pool, 4).tolist() == [0, 3]
    with pytest.raises(DataError, match="first is -1 at position 0"):
        check_dataset(dataset([-1, 0]))
    with pytest.raises(DataError, match="no training samples"):
        check_dataset(dataset([]))
    with pytest.raises(DataError, match="no classes"):
        check_dataset(dataset([0], classes=0))
    check_dataset(dataset([0], classes=1))
    good, bad = dataset([0]).train, dataset([3]).train
    check_dataset(Dataset("toy", good, bad, ("a", "b", "c")))
    with pytest.raises(DataError, match="1 labels of the train part"):
        check_dataset(Dataset("toy", bad, good, ("a", "b", "c")))


def test_labels_of_other_problems_are_checked_by_their_problem() -> None:
    def multilabel(y: torch.Tensor, samples: int = 2) -> Dataset:
        pool = Pool(torch.zeros(samples, 1), y)
        return Dataset("toy", pool, pool, ("a", "b"), problem="multilabel")

    check_dataset(multilabel(torch.tensor([[0, 1], [1, 1]])))
    for part in ("train", "test"):
        with pytest.raises(DataError, match=part):
            check_labels(multilabel(torch.tensor([[0, 1], [1, 2]])), part)  # type: ignore[arg-type]
        with pytest.raises(DataError, match=f"the {part} part has 3 samples and 2 labels"):
            check_labels(multilabel(torch.tensor([[0, 1], [1, 1]]), 3), part)  # type: ignore[arg-type]


@pytest.mark.parametrize("ids", [[0.0, 1.0], [-1, 3], [0, 1, 2], [[0], [1]], ["0", "1"]])
def test_ids_are_whole_numbers_one_for_each_sample(ids: list[object]) -> None:
    pool = Pool(torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(DataError, match="domains must be one whole number of at least 0 for each of the 2 samples"):
        check_ids(np.array(ids), pool, "domains")
    assert check_ids(np.array([0, 3], np.uint8), pool, "domains").tolist() == [0, 3]
    assert check_ids(np.zeros(0, np.int64), Pool(pool.x[:0], pool.y[:0]), "domains").tolist() == []


def test_domains_count_only_where_both_parts_have_them() -> None:
    pool = Pool(torch.zeros(3, 1), torch.tensor([0, 2, 1]))
    for train, test, expected in (
        (None, None, [0, 2, 1]),
        ([1, 0, 1], None, [0, 2, 1]),
        (None, [1, 0, 1], [0, 2, 1]),
        ([1, 0, 1], [1, 0, 1], [3, 2, 4]),  # three classes: those of domain 1 begin at 3
    ):
        ids = [None if part is None else np.array(part) for part in (train, test)]
        found = kinds(Dataset("toy", pool, pool, tuple("abc"), train_domains=ids[0], test_domains=ids[1]))
        assert [part.tolist() for part in found] == [expected, expected]


def test_nobody_can_share_nothing() -> None:
    empty = Pool(torch.zeros(0, 1), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ConfigError, match="1 clients cannot share 0 training samples"):
        check_enough(Dataset("toy", empty, empty, ("a",)), 1)
    assert count_named(Dataset("toy", empty, empty, ("a",), train_clients=np.zeros(0, np.int64))) == 0
    groups = Groups.of([])
    assert (len(groups), groups.order.tolist(), groups.offsets.tolist()) == (0, [], [0])


def test_what_a_black_pixel_becomes() -> None:
    assert black(dataset([0], mean=(0.5, 0.2), std=(0.25, 0.1)), "rotate") == pytest.approx((-2.0, -2.0))
    assert black(dataset([0]), "rotate") == ()
    for mean, std in (((0.5,), (0.25, 0.1)), ((0.5,), (0.0,))):
        with pytest.raises(DataError, match="cannot be normalised"):
            black(dataset([0], mean=mean, std=std), "rotate")


def test_held_out_shares_are_rounded_half_up_and_leave_one() -> None:
    groups = Groups.of([range(n) for n in (0, 1, 2, 3, 6, 10)])
    kept, held = holdout(groups, 0.25, np.random.default_rng(0))
    assert held.sizes.tolist() == [0, 0, 1, 1, 2, 3]  # 0.5, 0.75, 1.5 and 2.5 are rounded up
    assert (kept.sizes + held.sizes).tolist() == [0, 1, 2, 3, 6, 10]
    assert holdout(groups, 0.9, np.random.default_rng(0))[0].sizes.tolist() == [0, 1, 1, 1, 1, 1]
    for k in range(6):
        assert sorted([*kept[k], *held[k]]) == list(range(len(groups[k])))
        assert kept[k].tolist() == sorted(kept[k])
    for fraction in (-0.1, 1.0, float("nan"), True):
        with pytest.raises(ConfigError, match="at least 0 and below 1"):
            holdout(groups, fraction, np.random.default_rng(0))


def test_unseen_clients_by_number_and_share() -> None:
    rng = np.random.default_rng(0)
    assert [len(unseen_clients(10, share, rng)) for share in (0, 3, 9, 0.0, 0.25, 0.99)] == [0, 3, 9, 0, 2, 9]
    for number in (10, 11):
        with pytest.raises(ConfigError, match=f"{number} unseen of 10 clients leave none"):
            unseen_clients(10, number, rng)
    for share in (-1, 1.0, float("nan")):
        with pytest.raises(ConfigError, match="unseen must be"):
            unseen_clients(10, share, rng)


def test_a_stratified_split_takes_at_least_one_and_never_all() -> None:
    strata = np.repeat([0, 1, 2, 3], [1, 2, 10, 5])
    train, test = stratified(strata, 0.25, np.random.default_rng(0))
    assert np.bincount(strata[test], minlength=4).tolist() == [0, 1, 3, 1]  # 0.25, 0.5, 2.5, 1.25: halves up
    assert sorted([*train, *test]) == list(range(18))
    most = stratified(strata, 0.99, np.random.default_rng(0))[0]
    assert np.bincount(strata[most]).tolist() == [1, 1, 1, 1]
    # with a second label, those set aside are spread over it: one in each quarter
    spread = np.tile([0, 1, 2, 3], 25)
    aside = stratified(np.zeros(100, np.int64), 0.2, np.random.default_rng(1), spread)[1]
    assert np.bincount(spread[aside]).tolist() == [5, 5, 5, 5]


@pytest.mark.parametrize(
    ("start", "expected"),
    [(0.0, [0, 2, 4]), (0.49, [0, 2, 4]), (0.5, [1, 3, 5]), (0.9, [1, 3, 5]), (float(np.nextafter(1, 0)), [1, 4, 5])],
)
def test_a_stratified_split_is_a_systematic_sample(start: float, expected: list[int]) -> None:
    """Of six in order every second, from a start in the first two, and never one of the next stratum.

    The largest number below 1, added to 1 or 2, is rounded to 2 or 3: places 4 and 6, of which the last is 5.
    """
    drawn = SimpleNamespace(permutation=np.arange, random=lambda: start)
    kept, aside = stratified(np.repeat([0, 1], 6), 0.5, drawn)  # type: ignore[arg-type]
    assert aside.tolist() == [*expected, *(6 + place for place in expected)]
    assert sorted([*kept, *aside]) == list(range(12))


def test_everybody_shares_the_test_pool_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "SHARED_LIMIT", 6)
    assert shared(3, 2).sizes.tolist() == [3, 3]
    with pytest.raises(ConfigError, match="more than 6 entries"):
        shared(7, 1)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([0, 1, 3], "numbered 0 to 3, but there are 3 clients; set clients = 4"),
        ([-1, 1, 2], "numbered -1 to 2"),
        ([0.0, 1.0, 2.0], "one whole number per test sample"),
        ([[0], [1], [2]], "one whole number per test sample"),
    ],
)
def test_natural_test_clients_that_are_refused(ids: list[object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        splits.natural(np.array(ids), 3, 3)
    assert splits.natural(np.array([0, 1, 2]), 3, 3).sizes.tolist() == [1, 1, 1]
    assert splits.natural(np.zeros(0, np.int64), 0, 3).sizes.tolist() == [0, 0, 0]


def test_everybody_shares_the_test_pool() -> None:
    groups = shared(3, 2)
    assert [groups[k].tolist() for k in range(2)] == [[0, 1, 2], [0, 1, 2]]
    with pytest.raises(ConfigError, match="more than 20000000 entries"):
        shared(20_000_001, 1)


def test_whole_numbers_in_proportion() -> None:
    assert in_proportion(np.array([1.0, 0.0, 2.0, 1.0]), 8).tolist() == [2, 0, 4, 2]
    assert in_proportion(np.array([1, 1, 1]), 10).tolist() == [3, 3, 4]
    assert in_proportion(np.array([0.1] * 10), 1).sum() == 1


def test_the_largest_give_to_those_who_have_too_little() -> None:
    owner = np.repeat([0, 1, 2, 3], [10, 8, 1, 3])
    mended = top_up(owner, 4, 4, np.random.default_rng(0))
    # four are wanted (3 for client 2, 1 for client 3): 10 and 8 come down to 7 and 7
    assert np.bincount(mended).tolist() == [7, 7, 4, 4]
    assert ((mended == owner) | np.isin(mended, [2, 3])).all()
    assert top_up(owner, 4, 1, np.random.default_rng(0)) is owner
