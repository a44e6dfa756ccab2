"""A data set, a partition or a transform is one file: put beside the others, it is found by itself."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from accord.data import federate, load_dataset, partitions, public, transforms
from accord.errors import ConfigError
from accord.settings import Registry, import_all

DATASET = """
from typing import Annotated

import numpy as np

from accord.data.federated import Dataset
from accord.data.files.collection import Places
from accord.data.public.registry import DATASETS, Normalise, image_pools


@DATASETS.add("stripes")
def stripes(places: Places, *, size: Annotated[int, "height and width"] = 4, normalise: Normalise = True) -> Dataset:
    'Eight images of stripes.'
    part = np.zeros((8, 1, size, size), np.uint8), np.arange(8) % 2
    return image_pools("stripes", part, part, ("across", "down"), ((0.5,), (0.5,)), normalise)
"""
PARTITION = """
import numpy as np

from accord.data.dealing import by_owner
from accord.data.federated import Dataset, Groups
from accord.data.partitions.registry import partition


@partition("alternate")
def alternate(dataset: Dataset, clients: int, rng: np.random.Generator) -> Groups:
    'Sample i to client i mod K.'
    return by_owner(np.arange(len(dataset.train)) % clients, clients)
"""
TRANSFORM = """
from accord.data.federated import Dataset, Environment, unchanged
from accord.data.transforms.registry import TRANSFORMS, Change


@TRANSFORMS.add("negative")
def negative(dataset: Dataset, clients: int, seed: int) -> Change:
    'Every second client sees its inputs negated.'
    return Change(lambda client, index, x: -x if client % 2 else x, (Environment("test", unchanged),))
"""


@pytest.fixture
def add(tmp_path, monkeypatch):
    def put(package: ModuleType, registry: Registry, name: str, text: str) -> None:
        folder = tmp_path / name
        folder.mkdir()
        Path(folder / f"new_{name}.py").write_text(text)
        module = f"{package.__name__}.new_{name}"
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(package, f"new_{name}", None, raising=False)
        monkeypatch.setitem(sys.modules, module, None)
        del sys.modules[module]  # what the import puts there is taken away at the end
        import_all(package.__name__)

    return put


def test_one_file_each(add):
    add(public, public.DATASETS, "stripes", DATASET)
    add(partitions, partitions.PARTITIONS, "alternate", PARTITION)
    add(transforms, transforms.TRANSFORMS, "negative", TRANSFORM)
    dataset = load_dataset("stripes", size=6)
    assert dataset.train.x.shape == (8, 1, 6, 6)
    with pytest.raises(ConfigError, match=r"dataset 'stripes' has no setting 'sise'.*Did you mean 'size'"):
        load_dataset("stripes", sise=6)
    data = federate(dataset, clients=2, partition="alternate", transform="negative", test="shared")
    assert [data.train[client].tolist() for client in range(2)] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    # a black pixel is (0 - 0.5) / 0.5
    assert [np.unique(data.client(client)[0]).tolist() for client in range(2)] == [[-1.0], [1.0]]


def test_a_name_is_given_once(add):
    with pytest.raises(ConfigError, match="the dataset 'mnist' is registered already"):
        add(public, public.DATASETS, "again", DATASET.replace("stripes", "mnist"))
