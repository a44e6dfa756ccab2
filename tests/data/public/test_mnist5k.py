"""The digits that come with the package."""

from __future__ import annotations

import hashlib
import os
import socket
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch

import accord.data as package
from accord.data.public import DATASETS, load_dataset
from accord.errors import ConfigError, DataError

EMBEDDED = Path(str(package.__file__)).parent / "embedded"


def test_counts_shapes_and_balance():
    data = load_dataset("mnist5k")
    assert data.train.x.shape == (4000, 1, 28, 28)
    assert data.test.x.shape == (1000, 1, 28, 28)
    assert data.train.x.dtype == data.test.x.dtype == torch.uint8
    assert data.train.y.dtype == torch.int64
    assert np.bincount(data.train.y).tolist() == [400] * 10
    assert np.bincount(data.test.y).tolist() == [100] * 10
    assert data.classes == tuple("0123456789")
    assert (data.note, data.train_clients, data.train_domains) == ("", None, None)


def test_the_arrays_are_those_the_script_drew():
    # printed by scripts/make_mnist5k.py, which checks the published MD5 sums of the four files first
    arrays = np.load(EMBEDDED / "mnist5k.npz", allow_pickle=False)
    digest = hashlib.sha256(b"".join(arrays[key].tobytes() for key in sorted(arrays.files))).hexdigest()
    assert digest == "87506ccb133d63e74fcb67f5646a3f063c69be3c2a066efc3d1d7354c8faa02e"
    assert all(arrays[key].dtype == np.uint8 for key in arrays.files)


def test_no_image_twice():
    data = load_dataset("mnist5k")
    images = torch.cat([data.train.x, data.test.x]).reshape(5000, -1).numpy()
    assert len(np.unique(images, axis=0)) == 5000


def test_labels_fit_the_images():
    # nearest class mean reaches about 82 % on MNIST; shuffled labels would give 10 %
    data = load_dataset("mnist5k")
    x = data.train.x.flatten(1).double()
    means = torch.stack([x[data.train.y == digit].mean(0) for digit in range(10)])
    guess = torch.cdist(data.test.x.flatten(1).double(), means).argmin(1)
    assert (guess == data.test.y).double().mean() > 0.75


def test_normalised_by_mnists_moments_and_nearly_standard():
    data = load_dataset("mnist5k")
    assert (data.train.mean, data.train.std) == ((0.1307,), (0.3081,))
    x, y = data.train.take(np.arange(4000))
    assert abs(float(x.mean())) < 0.03
    assert abs(float(x.std()) - 1) < 0.03
    assert torch.equal(y, data.train.y)
    plain = load_dataset("mnist5k", normalise=False)
    x, _ = plain.test.take(np.arange(10))
    assert plain.test.mean == ()
    assert (float(x.min()), float(x.max())) == (0.0, 1.0)


def test_needs_no_folder_and_no_network(monkeypatch, tmp_path):
    def refuse(*_args, **_kwargs):
        raise AssertionError("network used")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setenv("ACCORD_DATA", str(tmp_path / "missing"))
    assert len(load_dataset("mnist5k", tmp_path / "missing", download=False).train) == 4000


class Trap:
    """Its pickle, opened, makes a folder."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)


def test_a_pickle_in_the_place_of_the_digits_is_not_opened(monkeypatch, tmp_path):
    (tmp_path / "embedded").mkdir()
    traps = {f"{part}_{kind}": np.array([Trap(tmp_path / "sprung")]) for part in ("train", "test") for kind in "xy"}
    np.savez(tmp_path / "embedded" / "mnist5k.npz", **traps)
    monkeypatch.setattr(resources, "files", lambda _package: tmp_path)
    with pytest.raises(DataError, match=r"mnist5k\.npz is damaged"):
        load_dataset("mnist5k")
    assert not (tmp_path / "sprung").exists()


def test_source_and_licence_are_stated():
    licence = (EMBEDDED / "LICENSE").read_text()
    for words in ("LeCun", "Cortes", "Burges", "CC BY-SA 3.0", "creativecommons.org/licenses/by-sa/3.0"):
        assert words in licence
    assert sum(file.stat().st_size for file in EMBEDDED.iterdir() if file.is_file()) < 1_100_000


def test_registry_names():
    assert set(DATASETS) == {
        *("mnist5k", "mnist", "fashion_mnist", "emnist_letters"),
        *("cifar10", "cifar100", "pacs", "folder", "given", "table"),
        *("market1501", "msmt17", "veri776", "cub200", "cub50"),
    }
    assert all(loader.__doc__ for loader in DATASETS.values())


def test_unknown_names_and_options():
    with pytest.raises(ConfigError, match=r"unknown dataset 'mnits'.*Did you mean 'mnist'"):
        load_dataset("mnits")
    with pytest.raises(ConfigError, match=r"has no setting 'normalize'.*Did you mean 'normalise'"):
        load_dataset("mnist5k", normalize=True)
    with pytest.raises(ConfigError, match='normalise = "no": must be true or false'):
        load_dataset("mnist5k", normalise="no")
    with pytest.raises(ConfigError, match="image_size = 0: must be at least 1"):
        load_dataset("pacs", image_size=0)
    with pytest.raises(ConfigError, match="image_size"):
        load_dataset("pacs", image_size=True)
    with pytest.raises(ConfigError, match=r"test_fraction = 1\.0: must be above 0 and below 1"):
        load_dataset("folder", path="x", test_fraction=1.0)
