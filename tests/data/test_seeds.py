"""Every random choice about data follows from the seed, and from nothing else; what happens when nothing is set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import accord
from accord.config import load_config
from accord.data.division import federate
from accord.data.federated import FederatedData
from accord.data.partitions import PARTITIONS
from accord.data.public import emnist_letters, fashion_mnist, mnist
from accord.data.streams import per_image, stream
from accord.data.transforms import TRANSFORMS
from accord.data.transforms.rotation import Rotate, rotated
from accord.engine.build import build_data
from accord.settings import settings_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 1, 6, 6)).astype(np.float32)
Y = np.arange(120) % 4


def divided(seed: int, **given: Any) -> FederatedData:
    dataset = accord.from_arrays(X, Y, test=(X[:40], Y[:40]))
    options: dict[str, Any] = {"clients": 6, "partition": "iid", "seed": seed, **given}
    return federate(dataset, **options)


def test_unseen_clients_follow_from_the_seed() -> None:
    chosen = [divided(seed, unseen=2).unseen for seed in range(12)]
    assert chosen == [divided(seed, unseen=2).unseen for seed in range(12)]
    assert all(len(unseen) == 2 and unseen <= set(range(6)) for unseen in chosen)
    assert len(set(chosen)) > 4, "another seed chooses others"
    for seed in (0, 1):  # asking for unseen clients leaves the division as it was
        with_them, without = divided(seed, unseen=2), divided(seed)
        assert all(np.array_equal(with_them.train[k], without.train[k]) for k in range(6))
        assert without.unseen == frozenset()


def test_a_runs_division_follows_its_own_seed_or_the_runs() -> None:
    def unseen(*sets: str) -> frozenset[int]:
        common = ["data.limit=60", "partition.clients=9", "partition.unseen=3", "partition.name=iid"]
        return build_data(load_config(None, [*common, *sets])).unseen

    assert unseen("seed=4") == unseen("seed=1", "partition.seed=4")
    assert len({unseen(f"seed={seed}") for seed in range(6)}) > 2
    assert len({unseen(f"seed={seed}", "partition.seed=2") for seed in range(6)}) == 1


def test_angles_of_images_follow_from_seed_client_and_position() -> None:
    index = np.arange(400)

    def angles(seed: int, client: int, rows: Any = index) -> Any:
        return Rotate((0.0, 90.0, 180.0), per="image", concentration=100.0, seed=seed).choice(client, rows)

    first = angles(3, 1)
    assert np.array_equal(first, angles(3, 1))
    np.testing.assert_allclose(np.bincount(first) / 400, 1 / 3, atol=0.12)
    assert np.array_equal(angles(3, 1, index[::-1]), first[::-1]), "an image keeps its angle in any batch"
    for other in (angles(4, 1), angles(3, 2)):
        assert 0.2 < (other == first).mean() < 0.5, "independent draws of one in three"
    shares = [Rotate((0.0, 90.0), per="image", concentration=1.0, seed=seed).shares(0) for seed in (0, 1)]
    assert not np.allclose(shares[0], shares[1])
    np.testing.assert_allclose([share.sum() for share in shares], 1)


def test_rotation_of_a_division_has_the_divisions_seed() -> None:
    settings = {"step": 90.0, "count": 4, "per": "image", "concentration": 1e6}
    views = []
    for seed in (0, 1, 0):
        data = divided(seed, transform="rotate", transform_settings=settings)
        transform: Any = data.transform
        assert (transform.seed, transform.per, transform.angles) == (seed, "image", (0.0, 90.0, 180.0, 270.0))
        rows = np.arange(20)
        views.append(transform(2, rows, data.train_pool.x[:20]))
        turned = [rotated(data.train_pool.x[i : i + 1], a) for i, a in enumerate(transform.choice(2, rows) * 90.0)]
        assert torch.equal(views[-1], torch.cat(turned))
    assert torch.equal(views[0], views[2])
    assert not torch.equal(views[0], views[1])


def test_images_are_drawn_by_splitmix64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The published first numbers for the seed 0, of which the upper 53 bits are taken."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC, 0x1B39896A51A8749B]
    monkeypatch.setattr("accord.data.streams.stream", lambda *_: Zero())
    found = per_image(3, "x", 0, np.array([1, 2, 3, 4, 5]))
    assert found.tolist() == [(number >> 11) / 2**53 for number in published]


class Zero:
    """A generator whose first number is 0."""

    def integers(self, *_: int, dtype: type) -> Any:
        return dtype(0)


def test_streams_are_apart() -> None:
    found = {
        stream(seed, purpose, *whose).integers(2**62)
        for seed in (0, 1)
        for purpose in ("partition", "test", "validation", "limit", "unseen")
        for whose in ((0,), (1,), (2,))
    }
    assert len(found) == 2 * 5 * 3
    assert stream(1, "test", 2).integers(2**62) == stream(1, "test", 2).integers(2**62)
    values = per_image(0, "x", 0, np.arange(2000))
    assert ((values >= 0) & (values < 1)).all()
    assert abs(values.mean() - 0.5) < 0.03
    assert abs(values.std() - 12**-0.5) < 0.02
    assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 0.08


@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_splits_follow_from_the_seed(part: str) -> None:
    def split(seed: int) -> list[list[int]]:
        groups = getattr(divided(seed, test="holdout", validation=0.25), part)
        return [groups[k].tolist() for k in range(6)]

    assert split(0) == split(0)
    assert split(0) != split(1)


@pytest.mark.parametrize(
    ("given", "part"),
    [({"test": "holdout"}, "test"), ({"test": "matching"}, "test"), ({"validation": 0.3}, "validation")],
)
def test_splits_of_a_fixed_division_follow_from_the_seed(given: dict[str, Any], part: str) -> None:
    """The clients are the data set's own, so that only the split can differ."""
    dataset = accord.from_arrays(X, Y, clients=np.arange(120) % 5, test=(X[:40], Y[:40], np.arange(40) % 5))

    def split(seed: int) -> list[list[int]]:
        groups = getattr(federate(dataset, clients=5, partition="natural", seed=seed, **given), part)
        return [groups[k].tolist() for k in range(5)]

    assert split(3) == split(3)
    assert len({str(split(seed)) for seed in range(4)}) == 4


def test_the_samples_of_a_limit_follow_from_the_seed() -> None:
    def kept(seed: int, limit: int = 50) -> set[bytes]:
        return {row.numpy().tobytes() for row in divided(seed, limit=limit).train_pool.x}

    assert kept(0) == kept(0)
    assert len(kept(0)) == 50
    assert kept(0) != kept(1)
    assert kept(0) < kept(0, 70), "a larger limit keeps those of a smaller one"


DEFAULTS: dict[str, dict[str, Any]] = {
    "label_split": {"groups": "even_odd"},
    "domains": {"clients_per_domain": 2},
    "dirichlet": {"alpha": 0.5, "min_size": 10, "balance": False},
    "lda": {"alpha": 0.1, "prior": True},
    "identities": {"pieces": 1},
    "natural": {},
    "auto": {},
    "class_shards": {"shards_per_class": 20, "shards_per_client": 2, "leave_unused": False},
    "sorted_shards": {"shards_per_client": 2},
    "iid": {},
    "quantity": {"law": "power", "spread": 1.0, "min_size": 10},
    "crop_flip": {"padding": 4},
    "none": {},
    "permute": {"keep_first": False, "environments": 10},
    "rotate": {"step": 15.0, "count": 10, "per": "client", "concentration": 1.0},
}


@pytest.mark.parametrize("name", [*PARTITIONS, *TRANSFORMS])
def test_partitions_and_transforms_left_alone(name: str) -> None:
    """By hand: 20 shards a class and 2 a client (FedUFO), 15 degrees (RotatedMNIST), 4 pixels (CIFAR), ..."""
    factory = PARTITIONS[name] if name in PARTITIONS else TRANSFORMS[name]
    assert {key: setting.default for key, setting in settings_of(factory).items()} == DEFAULTS[name]


def test_pixels_are_normalised_by_the_usual_numbers() -> None:
    """Mean and deviation of the training pixels, as published with the data sets."""
    assert mnist.PIXELS == ((0.1307,), (0.3081,))
    assert fashion_mnist.PIXELS == ((0.2860,), (0.3530,))
    assert emnist_letters.PIXELS == ((0.1722,), (0.3309,))
