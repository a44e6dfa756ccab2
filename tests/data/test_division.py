"""The whole way from a data set to federated data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from accord.data import division
from accord.data.division import federate
from accord.data.federated import Dataset, Pool
from accord.data.streams import stream
from accord.data.transforms.rotation import rotated
from accord.errors import ConfigError, DataError


def toy(samples=600, classes=5, tests=100, **more) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (samples + tests, 1, 8, 8), generator=generator, dtype=torch.uint8)
    y = torch.arange(samples + tests) % classes
    train, test = Pool(x[:samples], y[:samples]), Pool(x[samples:], y[samples:])
    return Dataset("toy", train, test, tuple("abcdefghij"[:classes]), **more)


def same(a, b):
    return np.array_equal(a.order, b.order) and np.array_equal(a.offsets, b.offsets)


class TestFederate:
    def test_defaults(self):
        data = federate(toy(), clients=8)
        assert len(data) == 8
        assert data.sizes.min() >= 10
        assert data.sizes.sum() == 600
        assert data.test_from == "test"
        assert data.test.sizes.sum() == 100
        assert data.validation.sizes.sum() == 0
        assert data.unseen == frozenset()
        assert (data.name, data.num_classes, data.sample_shape, data.note) == ("toy", 5, (1, 8, 8), "")
        x, y = data.client(2)
        assert len(x) == len(y) == data.sizes[2]

    def test_one_wish_does_not_change_another(self):
        plain = federate(toy(), clients=8, seed=4)
        more = federate(toy(), clients=8, seed=4, unseen=3, transform="rotate")
        assert same(plain.train, more.train)
        assert same(plain.test, more.test)
        validated = federate(toy(), clients=8, seed=4, validation=0.2)
        assert same(plain.test, validated.test)
        for k in range(8):
            both = sorted([*validated.train[k], *validated.validation[k]])
            assert both == sorted(plain.train[k].tolist())
        own = federate(toy(), clients=8, seed=4, test="holdout")
        checked = federate(toy(), clients=8, seed=4, test="holdout", validation=0.3)
        assert same(own.test, checked.test)
        assert not same(plain.train, federate(toy(), clients=8, seed=5).train)

    def test_holdout_is_a_quarter_of_the_own_samples(self):
        data = federate(toy(), clients=10, partition="iid", test="holdout", validation=0.2)
        assert set(data.test.sizes.tolist()) == {15}
        assert set(data.validation.sizes.tolist()) == {9}  # 20% of the 45 left
        assert set(data.train.sizes.tolist()) == {36}
        assert data.test_from == "train"
        everything = np.concatenate([data.train.order, data.validation.order, data.test.order])
        assert np.array_equal(np.sort(everything), np.arange(600))
        assert torch.equal(data.client(3, "test")[1], data.train_pool.y[data.test[3]])

    def test_matching_keeps_to_the_own_classes(self):
        data = federate(toy(), clients=5, partition="label_split")
        for k in range(5):
            assert set(data.client(k)[1].tolist()) == set(data.client(k, "test")[1].tolist()) == {k}

    def test_matching_keeps_to_the_own_domain(self):
        domains, test_domains = np.arange(600) % 2, np.arange(100) % 2
        dataset = toy(train_domains=domains, test_domains=test_domains)
        data = federate(dataset, clients=4, partition="domains")
        for k in range(4):
            assert set(test_domains[data.test[k]].tolist()) == {k // 2}
        assert data.test.sizes.sum() == 100

    def test_shared(self):
        data = federate(toy(), clients=3, test="shared")
        assert data.test.sizes.tolist() == [100, 100, 100]

    def test_natural_says_what_is_empty(self):
        ids = np.arange(600) % 7
        dataset = toy(train_clients=np.where(ids == 3, 4, ids), test_clients=np.arange(100) % 6, note="small copy")
        data = federate(dataset, clients=7, partition="natural", test="natural")
        assert data.sizes[3] == 0
        assert data.test.sizes[6] == 0
        assert data.note == ("small copy; 1 of 7 clients have no training samples; 1 of 7 clients have no test samples")
        limited = federate(dataset, clients=7, partition="natural", test="natural", limit=4)
        assert len(limited) == 7
        assert limited.sizes.sum() == 4

    def test_limit_is_random_and_grows(self):
        dataset = toy()
        few = federate(dataset, clients=2, partition="iid", limit=50)
        more = federate(dataset, clients=2, partition="iid", limit=200)
        assert len(few.train_pool) == few.sizes.sum() == 50
        assert "50 of 600 training samples used" in few.note
        few_images = {bytes(image.numpy().tobytes()) for image in few.train_pool.x}
        more_images = {bytes(image.numpy().tobytes()) for image in more.train_pool.x}
        assert few_images < more_images
        assert few_images != {bytes(image.numpy().tobytes()) for image in dataset.train.x[:50]}
        assert federate(dataset, clients=2, limit=10_000).sizes.sum() == 600
        assert len(few.test_pool) == 100

    def test_leftovers_are_said(self):
        assert federate(toy(), clients=7, partition="lda").note == "5 training samples are with no client"

    def test_transform_reaches_the_clients(self):
        data = federate(toy(), clients=4, partition="iid", transform="rotate", transform_settings={"count": 3})
        plain, _ = data.train_pool.take(data.train[2])
        assert torch.equal(data.client(2)[0], rotated(plain, 30))
        assert [e.name for e in data.environments] == ["rotated by 0", "rotated by 15", "rotated by 30"]

    def test_a_hundred_thousand_clients(self):
        y = torch.arange(1_000_000) % 10
        dataset = Dataset(
            "big", Pool(torch.zeros(len(y), 1), y), Pool(torch.zeros(1000, 1), y[:1000]), tuple("0123456789")
        )
        data = federate(dataset, clients=100_000, partition="iid", validation=0.1)
        assert set(data.sizes.tolist()) == {9}
        assert data.test.sizes.sum() == 1000


class TestRefusals:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"clients": -1}, "clients must be"),
            ({"clients": False}, "clients must be"),
            ({"partition": "dirichle"}, "Did you mean 'dirichlet'"),
            ({"partition": "dirichlet", "partition_settings": {"alpha": -1}}, "alpha = -1"),
            ({"partition_settings": {"alpha": 1}}, "alpha: settings of a partition that is not named"),
            ({"partition": "iid", "partition_settings": {"clients": 3}}, "has no setting 'clients'"),
            ({"partition": "iid", "partition_settings": {"rng": 3}}, "has no setting 'rng'"),
            ({"transform": "rotation"}, "Did you mean 'rotate'"),
            ({"transform_settings": {"step": 1.0}}, "It has no settings"),
            ({"test": "matchin"}, "Did you mean 'matching'"),
            ({"test": "natural"}, "belongs to partition = 'natural'"),
            ({"holdout": 1.0}, "below 1"),
            ({"validation": -0.1}, "at least 0"),
            ({"validation": True}, "must be a number"),
            ({"unseen": 4}, "leave none to train"),
            ({"limit": 0}, "limit must be"),
            ({"limit": 1.5}, "limit must be"),
            ({"seed": -1}, "at least 0"),
            ({"seed": "x"}, "whole number"),
        ],
    )
    def test_settings(self, settings, message):
        with pytest.raises(ConfigError, match=message):
            federate(toy(), **{"clients": 4} | settings)

    def test_data(self):
        with pytest.raises(DataError, match="no test samples; use test = 'holdout'"):
            federate(toy(tests=0), clients=4)
        assert federate(toy(tests=0), clients=4, test="holdout").test.sizes.min() > 0
        with pytest.raises(DataError, match="no training samples"):
            federate(toy(samples=0), clients=4)
        wrong = toy()
        with pytest.raises(DataError, match="test part are not class numbers"):
            federate(Dataset("toy", wrong.train, Pool(wrong.test.x, wrong.test.y + 3), wrong.classes), clients=4)
        with pytest.raises(DataError, match="one label per sample"):
            federate(Dataset("toy", Pool(wrong.train.x, wrong.train.y[1:]), wrong.test, wrong.classes), clients=4)
        with pytest.raises(DataError, match="must be whole numbers"):
            federate(
                Dataset("toy", Pool(wrong.train.x, wrong.train.y.float()), wrong.test, wrong.classes),
                clients=4,
            )
        with pytest.raises(DataError, match="lists no classes"):
            federate(Dataset("toy", wrong.train, wrong.test, ()), clients=4)


@pytest.mark.parametrize("test", ["holdout", "matching"])
def test_everything_random_has_the_stream_of_its_purpose(test: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for one more thing leaves the others as they were, in this version and in those to come."""
    heard: dict[str, Any] = {}

    def listening(place: Any, name: str, purpose: str) -> None:
        whole = getattr(place, name)

        def heard_by(*given: Any, **named: Any) -> Any:
            (rng,) = [one for one in given if isinstance(one, np.random.Generator)]
            if name != "holdout" or given[1]:
                heard[purpose if name != "holdout" else f"held {given[1]}"] = rng.bit_generator.state
            return whole(*given, **named)

        monkeypatch.setattr(place, name, heard_by)

    for name, purpose in (("unseen_clients", "unseen"), ("holdout", ""), ("matching", "test")):
        listening(division.splits, name, purpose)
    listening(division, "limited", "limit")
    rule = division.PARTITIONS["iid"]

    def dealt(dataset: Any, clients: int, rng: np.random.Generator) -> Any:
        heard["partition"] = rng.bit_generator.state
        return rule(dataset, clients, rng)

    monkeypatch.setattr(division, "PARTITIONS", {"iid": dealt})
    pool = Pool(torch.zeros(80, 1), torch.arange(80) % 4)
    how: dict[str, Any] = {"validation": 0.25, "holdout": 0.5, "unseen": 1, "limit": 60, "seed": 9}
    division.federate(Dataset("toy", pool, pool, tuple("abcd")), clients=3, partition="iid", test=test, **how)
    purposes = {"unseen": "unseen", "limit": "limit", "partition": "partition", "held 0.25": "validation"}
    purposes["held 0.5" if test == "holdout" else "test"] = "test"
    assert heard == {place: stream(9, purpose).bit_generator.state for place, purpose in purposes.items()}
