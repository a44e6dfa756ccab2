"""Folders of re-identification and of birds, generated small: read, divided, trained and judged end to end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import accord
from accord.config import load_config
from accord.data import load_dataset
from accord.data.federated import Dataset
from accord.data.files.packed import pack
from accord.data.partitions import PARTITIONS
from accord.data.public.cub200 import _below, _numbered
from accord.errors import ConfigError, DataError

image = pytest.importorskip("PIL.Image")


def draw(path: Path, identity: int, camera: int) -> None:
    """A picture whose colour is its identity's and whose noise its camera's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(100 * identity + camera)
    pixels = np.full((16, 8, 3), (40 * identity % 256, 97 * identity % 256, 200)) + rng.integers(0, 30, (16, 8, 3))
    image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)


def market(root: Path) -> None:
    for folder, people in (("bounding_box_train", (2, 7, 10)), ("query", (1, 3)), ("bounding_box_test", (1, 3))):
        for person in people:
            for camera in (1, 2) if folder != "query" else (1,):
                for n in range(3 if "train" in folder else 1):
                    draw(root / "market1501" / folder / f"{person:04d}_c{camera}s1_{n:06d}_00.jpg", person, camera)
    draw(root / "market1501" / "bounding_box_test" / "-1_c1s1_000001_00.jpg", 9, 1)  # junk
    draw(root / "market1501" / "bounding_box_test" / "0000_c1s1_000001_00.jpg", 8, 1)  # somebody else
    (root / "market1501" / "query" / "Thumbs.db").write_text("no picture")


def msmt(root: Path) -> None:
    lists: dict[str, list[str]] = {"train": [], "val": [], "query": [], "gallery": []}
    for part, folder, people in (("train", "train", (0, 1)), ("val", "train", (0, 1, 2))):
        for person in people:
            for camera in (1, 2):
                name = (
                    f"{person:04d}/{person:04d}_{0 if part == 'train' else 1:03d}_{camera:02d}_0303morning_0015_0.jpg"
                )
                draw(root / "MSMT17" / folder / name, person, camera)
                lists[part].append(f"{name} {person}")
    for part, camera in (("query", 3), ("gallery", 4)):
        for person in (0, 1):
            name = f"{person:04d}/{person:04d}_000_{camera:02d}_0303noon_0015_0.jpg"
            draw(root / "MSMT17" / "test" / name, person + 5, camera)
            lists[part].append(f"{name} {person}")
    for part, lines in lists.items():
        (root / "MSMT17" / f"list_{part}.txt").write_text("\n".join(lines) + "\n")


def veri(root: Path) -> None:
    for part, cars, cameras in (("train", (1, 4, 6), (1, 2)), ("query", (2, 5), (3,)), ("test", (2, 5), (3, 4))):
        names = [f"{car:04d}_c{camera:03d}_00016450_0.jpg" for car in cars for camera in cameras]
        for name in names:
            draw(root / "VeRi" / f"image_{part}" / name, int(name[:4]), int(name[6:9]))
        if part == "query":
            (root / "VeRi" / "name_query.txt").write_text("\n".join(names) + "\n")


def cub(root: Path) -> None:
    images, labels, split = [], [], []
    for number in range(1, 13):
        species = 1 + number % 3
        name = f"{species:03d}.Bird/Bird_{number:04d}.jpg"
        draw(root / "CUB_200_2011" / "images" / name, species, number)
        images.append(f"{number} {name}")
        labels.append(f"{number} {species}")
        split.append(f"{number} {int(number <= 8)}")
    for name, lines in (("images", images), ("image_class_labels", labels), ("train_test_split", split)):
        (root / "CUB_200_2011" / f"{name}.txt").write_text("\n".join(lines) + "\n")


def test_market_is_read_by_its_names(tmp_path: Path) -> None:
    market(tmp_path)
    data = load_dataset("market1501", tmp_path, height=32, width=16)
    assert data.train.x.shape == (18, 3, 32, 16)
    assert data.classes == ("0002", "0007", "0010", "0000", "0001", "0003")
    assert np.bincount(data.train.y.numpy()).tolist() == [6, 6, 6]
    assert data.search is not None
    assert data.search.queries == 2
    assert [data.classes[y] for y in data.test.y.tolist()] == ["0001", "0003", "0000", "0001", "0001", "0003", "0003"]
    assert data.search.cameras.tolist() == [1, 1, 1, 1, 2, 1, 2]


def test_msmt_is_read_by_its_lists_and_its_test_people_are_others(tmp_path: Path) -> None:
    msmt(tmp_path)
    data = load_dataset("msmt17", tmp_path, height=8, width=8)
    assert data.classes == ("train-0000", "train-0001", "train-0002", "test-0000", "test-0001")
    assert len(data.train) == 10
    assert data.search is not None
    assert (data.search.queries, data.search.cameras.tolist()) == (2, [3, 3, 4, 4])


def test_veri_is_read_by_lists_and_by_names(tmp_path: Path) -> None:
    veri(tmp_path)
    data = load_dataset("veri776", tmp_path, height=8, width=8)
    assert data.classes == ("0001", "0004", "0006", "0002", "0005")
    assert data.search is not None
    assert (data.search.queries, data.search.cameras.tolist()) == (2, [3, 3, 3, 4, 3, 4])
    (tmp_path / "VeRi" / "name_query.txt").write_text("0002_c003_00000000_9.jpg\n")
    with pytest.raises(DataError, match="which is no picture of"):
        load_dataset("veri776", tmp_path)


def test_a_line_is_a_number_and_all_that_follows(tmp_path: Path) -> None:
    (tmp_path / "images.txt").write_text("1 001.Name/A bird 1.jpg\n2 b.jpg\n")
    assert _numbered(tmp_path / "images.txt") == {"1": "001.Name/A bird 1.jpg", "2": "b.jpg"}
    for broken in ("1 a.jpg\n2\n", ""):
        (tmp_path / "images.txt").write_text(broken)
        with pytest.raises(DataError, match="expected lines of a number and a word"):
            _numbered(tmp_path / "images.txt")


def test_cub_is_read_by_its_three_lists(tmp_path: Path) -> None:
    cub(tmp_path)
    data = load_dataset("cub200", tmp_path, image_size=8)
    assert data.classes == ("001", "002", "003")
    assert data.train.y.tolist() == [1, 2, 0, 1, 2, 0, 1, 2]
    assert data.test.y.tolist() == [0, 1, 2, 0]
    (tmp_path / "CUB_200_2011" / "images.txt").write_text("1 ../secret.jpg\n")
    with pytest.raises(DataError, match="number other images"):
        load_dataset("cub200", tmp_path)


def test_packed_images_need_no_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    birds(tmp_path)
    read = load_dataset("cub50", tmp_path)
    path = pack(read, tmp_path / "cub50")
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    again = load_dataset("cub50", tmp_path)
    assert (again.classes, again.note) == (read.classes, "first 50 of 200 classes, 64 x 64 copy")
    assert bool((again.train.x == read.train.x).all())
    monkeypatch.undo()
    assert load_dataset("cub50", tmp_path, image_size=8).train.x.shape[-2:] == (8, 8), "of another size: the pictures"
    path.write_bytes(b"x" * 20)
    with pytest.raises(DataError, match="holds no packed images"):
        load_dataset("cub50", tmp_path)


@pytest.mark.parametrize("name", ["market1501", "msmt17", "veri776", "cub200", "cub50"])
def test_what_is_not_there_is_asked_for(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="are not on this machine") as caught:
        load_dataset(name, tmp_path, download=False)
    assert str(tmp_path) in str(caught.value)


def birds(root: Path) -> None:
    for part in ("train", "test"):
        for species in (0, 1):
            draw(root / "cub50" / part / f"class_{species:03d}" / "a.png", species, 1)


@pytest.mark.parametrize(
    ("name", "make", "folders"),
    [
        ("market1501", market, ("bounding_box_train", "query", "bounding_box_test")),
        ("msmt17", msmt, ("train", "test")),
        ("veri776", veri, ("image_train", "image_query", "image_test")),
        ("cub50", birds, ("train", "test")),
    ],
)
def test_every_folder_must_be_there(tmp_path: Path, name: str, make: Any, folders: tuple[str, ...]) -> None:
    make(tmp_path)
    (root,) = tmp_path.iterdir()
    for folder in folders:
        (root / folder).rename(tmp_path / "away")
        with pytest.raises(DataError, match=f"{name}: its pictures are not on this machine"):
            load_dataset(name, tmp_path)
        (tmp_path / "away").rename(root / folder)
    assert len(load_dataset(name, tmp_path).train) > 0


@pytest.mark.parametrize("other", ["images", "image_class_labels", "train_test_split"])
def test_each_list_of_birds_must_number_the_same_images(tmp_path: Path, other: str) -> None:
    cub(tmp_path)
    path = tmp_path / "CUB_200_2011" / f"{other}.txt"
    path.write_text(path.read_text() + "13 1\n")
    with pytest.raises(DataError, match="number other images"):
        load_dataset("cub200", tmp_path, image_size=8)


@pytest.mark.parametrize("name", ["../secret.jpg", "a/../../secret.jpg", "/etc/secret.jpg"])
def test_a_list_of_birds_does_not_lead_out_of_its_folder(tmp_path: Path, name: str) -> None:
    assert _below(tmp_path, "001.Bird/a.jpg") == tmp_path / "001.Bird" / "a.jpg"
    with pytest.raises(DataError, match="leads out of it"):
        _below(tmp_path, name)


def test_names_that_say_nothing_are_refused(tmp_path: Path) -> None:
    market(tmp_path)
    draw(tmp_path / "market1501" / "query" / "somebody.jpg", 1, 1)
    with pytest.raises(DataError, match=r"somebody\.jpg: its name does not say whose picture"):
        load_dataset("market1501", tmp_path)


def test_identities_are_dealt_whole_and_evenly(tmp_path: Path) -> None:
    market(tmp_path)
    data: Dataset = load_dataset("market1501", tmp_path, height=4, width=4)
    groups = PARTITIONS["identities"](data, 3, np.random.default_rng(0))
    labels = data.train.y.numpy()
    assert sorted(tuple(np.unique(labels[groups[k]])) for k in range(3)) == [(0,), (1,), (2,)]
    halves = PARTITIONS["identities"](data, 6, np.random.default_rng(0), pieces=2)
    assert halves.sizes.tolist() == [3] * 6
    with pytest.raises(ConfigError, match="set pieces = 2"):
        PARTITIONS["identities"](data, 5, np.random.default_rng(0))


@pytest.mark.parametrize(("name", "make"), [("market1501", market), ("msmt17", msmt), ("veri776", veri)])
def test_a_federation_searches(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    make(tmp_path)
    sets = [f"data.name={name}", f"data.dir={tmp_path}", "data.height=16", "data.width=8", "rounds=1", "model.name=2nn"]
    sets += ["partition.name=identities", "partition.clients=3", "local.batch_size=4", f"out={tmp_path / 'runs'}"]
    sets += ["evaluate.retrieval=true", "algorithm.name=feduad", "algorithm.disc_layers=3", "executor=sequential"]
    outcome = accord.run(load_config(None, sets))
    found = outcome.summary["retrieval"]
    assert found["queries"] == 2
    assert found["map"] > 0.4  # colours tell them apart
    assert found["cmc1"] <= found["cmc5"] <= found["cmc10"] == 1


def test_other_data_has_no_queries(tmp_path: Path) -> None:
    sets = ["data.limit=600", "rounds=1", "evaluate.retrieval=true", f"out={tmp_path}"]
    with pytest.raises(ConfigError, match="needs a data set with queries and a gallery"):
        accord.run(load_config(None, sets))
