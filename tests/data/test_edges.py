"""Edges of what data may look like, one step to either side."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import accord
from accord.data.checks import check_dataset, labels_of
from accord.data.dealing import in_proportion, top_up
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
