"""What data are like when nothing is said: every default, and the published numbers of the public sets, by hand."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from accord.data import checks, dealing, description, division
from accord.data.federated import Dataset, FederatedData
from accord.data.files import collection, download, idx
from accord.data.own import arrays, flower, folder, huggingface, sequences, summaries, table
from accord.data.partitions import PARTITIONS
from accord.data.partitions.registry import partition
from accord.data.public import cifar, emnist_letters, fashion_mnist, load_dataset, mnist
from accord.data.public.registry import DATASETS
from accord.data.transforms import TRANSFORMS, cropping, permutation, rotation
from accord.data.transforms.registry import make_transform
from accord.settings import AtLeast, Range, settings_of

SPLIT = {"test_fraction": 0.2, "seed": 0}
NAMED_SPLIT = {"test_fraction": 0.2, "split_seed": 0, "normalise": True}
DEFAULTS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (arrays.from_arrays, {"normalise": False, **SPLIT}),
    (arrays.from_torch, {"normalise": False, **SPLIT}),
    (huggingface.from_huggingface, {"normalise": False, "task": "auto", **SPLIT}),
    (table.from_table, {"normalise": True, **SPLIT}),
    (summaries.summarise, {"features": None, "task": "auto", "missing": "error", **SPLIT}),
    (sequences.from_sequences, SPLIT),
    (folder.from_folder, {"image_size": None, "normalise": True, **SPLIT}),
    (flower.from_flwr_partitioner, {"allow_missing": False}),
    (DATASETS["folder"], {"image_size": None, **NAMED_SPLIT}),
    (DATASETS["table"], NAMED_SPLIT),
    (DATASETS["pacs"], {"image_size": None, **NAMED_SPLIT}),
    *[
        (DATASETS[name], {"normalise": True})
        for name in ("given", "mnist", "mnist5k", "fashion_mnist", "emnist_letters", "cifar10", "cifar100")
    ],
    (load_dataset, {"data_dir": None, "download": True, "task": "auto"}),
    (download.fetch, {"timeout": 30.0, "attempts": 5, "pause": 1.0}),
    (collection.Places, {"download": True, "progress": None}),
    (division.federate, {"clients": 0, "holdout": 0.25, "validation": 0.0, "unseen": 0, "seed": 0}),
    (division.arrangement, {"partition": "auto", "clients": 0, "test": "auto"}),
    (PARTITIONS["domains"], {"clients_per_domain": 2}),
    (PARTITIONS["dirichlet"], {"alpha": 0.5, "min_size": 10, "balance": False}),
    (PARTITIONS["identities"], {"pieces": 1}),
    *[(DATASETS[name], {"height": 256, "width": 128, "normalise": True}) for name in ("market1501", "msmt17")],
    (DATASETS["veri776"], {"height": 256, "width": 256, "normalise": True}),
    (DATASETS["cub200"], {"image_size": 224, "normalise": True}),
    (DATASETS["cub50"], {"image_size": None, "normalise": True}),
    (PARTITIONS["lda"], {"alpha": 0.1, "prior": True}),
    (PARTITIONS["class_shards"], {"shards_per_class": 20, "shards_per_client": 2, "leave_unused": False}),
    (PARTITIONS["sorted_shards"], {"shards_per_client": 2}),
    (PARTITIONS["quantity"], {"spread": 1.0, "min_size": 10}),
    (partition, {"may_be_empty": False, "by_class": False}),
    (make_transform, {"seed": 0}),
    (TRANSFORMS["crop_flip"], {"padding": 4}),
    (TRANSFORMS["permute"], {"keep_first": False, "environments": 10}),
    (TRANSFORMS["rotate"], {"step": 15.0, "count": 10, "per": "client", "concentration": 1.0}),
    (cropping.CropFlip, {"padding": 4, "fill": (), "seed": 0}),
    (permutation.Permute, {"seed": 0, "keep_first": False}),
    (rotation.Rotate, {"per": "client", "fill": (), "concentration": 1.0, "seed": 0}),
    (checks.labels_of, {"part": "train"}),
    (checks.check_clients, {"least": 1}),
    (dealing.enough, {"each": 1}),
    (description.describe, {"split": "train"}),
    (FederatedData.client, {"split": "train"}),
]


@pytest.mark.parametrize(("made", "expected"), DEFAULTS, ids=lambda value: getattr(value, "__qualname__", ""))
def test_defaults(made: Callable[..., Any], expected: dict[str, Any]) -> None:
    parameters = inspect.signature(made).parameters
    assert {name: parameters[name].default for name in expected} == expected


def test_samples_are_judged_on_the_test_part_as_it_is() -> None:
    fields = {field.name: field.default for field in dataclasses.fields(FederatedData)}
    assert fields["test_from"] == "test"
    assert [environment.name for environment in fields["environments"]] == ["test"]
    assert next(field.default for field in dataclasses.fields(Dataset) if field.name == "problem") == "classification"


def test_data_that_names_nobody_is_divided_among_twenty_clients() -> None:
    assert division.arrangement(None) == ("dirichlet", 20, "matching")


def test_moments_of_the_published_pixels() -> None:
    """Mean and deviation over all training pixels, as everybody writes them."""
    assert mnist.PIXELS == ((0.1307,), (0.3081,))
    assert fashion_mnist.PIXELS == ((0.2860,), (0.3530,))
    assert emnist_letters.PIXELS == ((0.1722,), (0.3309,))
    assert cifar.PIXELS_10 == ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    assert cifar.PIXELS_100 == ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))


def test_classes_of_the_published_sets() -> None:
    assert tuple("0123456789") == mnist.CLASSES
    assert cifar.CLASSES_100[90] == "train"
    assert len(set(cifar.CLASSES_100)) == 100
    assert list(cifar.CLASSES_100) == sorted(cifar.CLASSES_100)


def test_the_first_labels_of_the_published_files() -> None:
    """The first twenty training labels of both sets, as their files have them."""
    assert idx.FIRST_LABELS == {
        "mnist": (5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3, 5, 3, 6, 1, 7, 2, 8, 6, 9),
        "fashion_mnist": (9, 0, 0, 3, 0, 2, 7, 2, 5, 5, 0, 9, 5, 5, 7, 9, 1, 0, 6, 4),
    }


def test_bounds_of_what_data_sets_by_name_share() -> None:
    for name, key in (("market1501", "height"), ("market1501", "width"), ("cub200", "image_size")):
        assert settings_of(DATASETS[name])[key].bounds == AtLeast(1)
    pictures = settings_of(DATASETS["pacs"])
    assert (pictures["test_fraction"].bounds, pictures["split_seed"].bounds) == (Range(above=0, below=1), Range(low=0))
