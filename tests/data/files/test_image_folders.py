"""Image folders: layouts, order, sizes, splits, and everything that can be wrong with them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from accord.data.own import from_folder
from accord.data.public import load_dataset
from accord.data.splits import stratified
from accord.errors import ConfigError, DataError

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


@pytest.fixture(autouse=True)
def _empty_home(monkeypatch, tmp_path):
    monkeypatch.delenv("ACCORD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def picture(path: Path, colour: tuple[int, int, int] | int = (10, 20, 30), size: tuple[int, int] = (6, 5)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L" if isinstance(colour, int) else "RGB", size, colour).save(path)


def tree(root: Path, folders: list[str], count: int = 5, **kwargs) -> Path:
    for folder in folders:
        for i in range(count):
            picture(root / folder / f"{i:02d}.png", **kwargs)
    return root


def load(root: Path, **options: object):
    return load_dataset("folder", path=root, **options)


def test_class_folders_are_split_four_to_one_in_each_class(tmp_path):
    root = tree(tmp_path / "zoo", ["cat", "ant"], 10)
    data = load(root)
    assert data.name == "zoo"
    assert data.classes == ("ant", "cat")
    assert np.bincount(data.train.y).tolist() == [8, 8]
    assert np.bincount(data.test.y).tolist() == [2, 2]
    assert data.train.x.shape == (16, 3, 5, 6)  # PIL sizes are width x height
    assert data.train.x[0, :, 0, 0].tolist() == [10, 20, 30]
    assert data.train_domains is None
    assert data.train.mean == data.train.std == (0.5, 0.5, 0.5)
    assert load(root, normalise=False).test.mean == ()


def test_the_split_is_repeatable_depends_on_the_seed_and_loses_nothing(tmp_path):
    for i in range(20):
        picture(tmp_path / "f" / "a" / f"{i}.png", i)
    shades = lambda pool: pool.x[:, 0, 0, 0].tolist()  # noqa: E731
    one, two = load(tmp_path / "f"), load(tmp_path / "f")
    assert shades(one.train) == shades(two.train)
    assert sorted(shades(one.train) + shades(one.test)) == list(range(20))
    assert len({tuple(shades(load(tmp_path / "f", split_seed=s).test)) for s in range(4)}) > 1
    assert len(load(tmp_path / "f", test_fraction=0.5).test) == 10


def test_train_and_test_folders_are_kept(tmp_path):
    tree(tmp_path / "f", ["train/a", "train/b"], 3, colour=1)
    tree(tmp_path / "f", ["test/b"], 2, colour=2)
    data = load(tmp_path / "f")
    assert data.train.y.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.test.y.tolist() == [1, 1]
    assert set(data.test.x.flatten().tolist()) == {2}
    assert data.train.x.shape[1] == 1  # all grey


def test_domains_are_numbered_by_name(tmp_path):
    tree(tmp_path / "f", ["photo/a", "art/b", "art/a"], 5)
    data = load(tmp_path / "f")
    assert data.classes == ("a", "b")
    assert data.train_domains.tolist() == [0] * 8 + [1] * 4
    assert data.train.y.tolist() == [0] * 4 + [1] * 4 + [0] * 4
    assert data.test_domains.tolist() == [0, 0, 1]
    assert data.test.y.tolist() == [0, 1, 0]


def test_of_domains_each_class_is_a_stratum_in_the_order_of_names(tmp_path):
    """Four of each of art/a, art/b, photo/a, photo/b, in this order: their shades are 0 to 15."""
    for shade in range(16):
        place = ("art/a", "art/b", "photo/a", "photo/b")[shade // 4]
        picture(tmp_path / "f" / place / f"{shade:02d}.png", shade)
    for seed in range(3):
        _, test = stratified(np.repeat([0, 1, 2, 3], 4), 0.25, np.random.default_rng(seed))
        data = load(tmp_path / "f", split_seed=seed, test_fraction=0.25)
        assert data.test.x[:, 0, 0, 0].tolist() == test.tolist()


def test_folders_of_sites_are_clients_with_names(tmp_path):
    data = from_folder(tree(tmp_path / "scans", ["lyon/cat", "lyon/dog", "aix/cat"]), name="mine")
    assert (data.name, data.classes, data.client_names) == ("mine", ("cat", "dog"), ("aix", "lyon"))
    assert data.train_clients.tolist() == data.train_domains.tolist() == [0] * 4 + [1] * 8
    assert data.test_clients.tolist() == [0, 1, 1]  # a fifth of each class of each site
    assert data.inputs.kind == "image"
    assert torch.equal(data.inputs.tensor(data.test.x.numpy()), data.test.take(np.arange(3))[0])
    flat = from_folder(tree(tmp_path / "flat", ["cat", "dog"]))
    assert (flat.train_clients, flat.client_names, flat.name) == (None, (), "flat")


def test_domains_below_train_and_test(tmp_path):
    tree(tmp_path / "f", ["train/d0/a", "train/d1/a", "test/d1/a"], 1)
    data = load(tmp_path / "f")
    assert (data.train_domains.tolist(), data.test_domains.tolist()) == ([0, 1], [1])


def test_order_does_not_depend_on_the_file_system(tmp_path):
    for shade, name in [(3, "c"), (1, "a"), (2, "b")]:
        picture(tmp_path / "f" / "train" / "x" / f"{name}.png", shade)
    picture(tmp_path / "f" / "test" / "x" / "a.png", 9)
    assert load(tmp_path / "f").train.x[:, 0, 0, 0].tolist() == [1, 2, 3]


def test_colour_and_grey_mixed_become_colour(tmp_path):
    picture(tmp_path / "f" / "a" / "0.png", 7)
    picture(tmp_path / "f" / "a" / "1.png", (1, 2, 3))
    data = load(tmp_path / "f", test_fraction=0.5)
    both = torch.cat([data.train.x, data.test.x])[:, :, 0, 0].tolist()
    assert sorted(both) == [[1, 2, 3], [7, 7, 7]]


def test_palettes_transparency_and_bits_are_converted(tmp_path):
    folder = tmp_path / "f" / "a"
    folder.mkdir(parents=True)
    Image.new("RGBA", (4, 4), (9, 8, 7, 0)).save(folder / "0.png")
    Image.new("RGB", (4, 4), (255, 0, 0)).quantize(4).save(folder / "1.png", transparency=b"\x80\x80\x80\x80")
    Image.new("1", (4, 4), 1).save(folder / "2.png")
    Image.new("RGB", (4, 4), (0, 0, 255)).save(folder / "3.gif")
    data = load(tmp_path / "f")
    colours = torch.cat([data.train.x, data.test.x])[:, :, 0, 0].tolist()
    assert sorted(colours) == [[0, 0, 255], [9, 8, 7], [255, 0, 0], [255, 255, 255]]


def test_sizes_must_agree_unless_a_size_is_given(tmp_path):
    picture(tmp_path / "f" / "a" / "0.png", size=(6, 5))
    picture(tmp_path / "f" / "a" / "1.png", size=(5, 6))
    with pytest.raises(DataError, match=r"0\.png is 6 x 5, .*1\.png is 5 x 6.*image_size"):
        load(tmp_path / "f")
    data = load(tmp_path / "f", image_size=8)
    assert data.train.x.shape == (1, 3, 8, 8)
    assert data.train.x[0, :, 3, 3].tolist() == [10, 20, 30]


def test_relative_paths_are_looked_for_below_the_data_folder(tmp_path):
    tree(tmp_path / "data" / "zoo", ["a"], 2)
    assert len(load_dataset("folder", tmp_path / "data", path="zoo").train) == 1


def test_hidden_and_foreign_files_are_ignored(tmp_path):
    root = tree(tmp_path / "f", ["a"], 2)
    (root / "a" / "Thumbs.db").write_bytes(b"x")
    (root / "a" / ".hidden.png").write_bytes(b"x")
    (root / ".git").mkdir()
    (root / "readme.txt").write_text("x")
    assert len(load(root).train) == 1


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        ([], "holds no folders"),
        (["a", "b/c"], "has no folders inside but"),
        (["train/a"], "there must be both"),
        (["test/a"], "there must be both"),
        (["train/a", "val/a"], "there must be both and no other"),
        (["train/a", "Train/a", "test/a"], "there must be both and no other"),
        (["train/a", "test/a", "val/a"], "there must be both and no other"),
        (["train/a", "test/d/a"], "both have domain folders, or neither"),
    ],
)
def test_layouts_that_cannot_be_understood(tmp_path, folders, message):
    (tmp_path / "f").mkdir()
    tree(tmp_path / "f", folders, 1)
    with pytest.raises(DataError, match=message):
        load(tmp_path / "f")


def test_images_beside_folders_and_empty_classes(tmp_path):
    root = tree(tmp_path / "f", ["d/a"], 2)
    picture(root / "d" / "stray.png")
    with pytest.raises(DataError, match="holds both images and folders"):
        load(root)
    (root / "d" / "stray.png").unlink()
    (root / "d" / "b").mkdir()
    with pytest.raises(DataError, match=r"the class folder .*b holds no images"):
        load(root)


def test_missing_path(tmp_path):
    with pytest.raises(DataError, match="is not a folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="needs the option 'path'"):
        load_dataset("folder")


def test_one_image_per_class_leaves_nothing_for_testing(tmp_path):
    with pytest.raises(DataError, match="no test data can be set aside"):
        load(tree(tmp_path / "f", ["a", "b"], 1))


@pytest.mark.parametrize("kind", ["text", "cut", "empty", "sixteen", "eps"])
def test_unreadable_images_are_named(tmp_path, kind):
    root = tree(tmp_path / "f", ["a"], 3, size=(40, 40))
    bad = root / "a" / "01.png"
    if kind == "cut":
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3)).astype(np.uint8)).save(bad)
        bad.write_bytes(bad.read_bytes()[:300])
    elif kind == "sixteen":
        Image.fromarray(np.full((40, 40), 3000, np.uint16)).save(bad)
    elif kind == "eps":  # Pillow would start Ghostscript for this
        bad.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 40 40\n%%EndComments\nshowpage\n%%EOF\n")
    else:
        bad.write_bytes(b"no image" if kind == "text" else b"")
    message = {"sixteen": "8 bits", "cut": "cannot be read as an image"}.get(kind, "cannot identify image file")
    with pytest.raises(DataError, match=message) as error:
        load(root)
    assert str(bad) in str(error.value)


def test_enormous_images_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    root = tree(tmp_path / "f", ["a"], 2, size=(40, 40))
    with pytest.raises(DataError, match=r"00\.png cannot be read as an image .*1600 pixels"):
        load(root)


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch):
    root = tree(tmp_path / "f", ["a"], 2)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"pip install 'accord-fl\[images\]'"):
        load(root)


def pacs(root: Path, size: tuple[int, int]) -> Path:
    return tree(root, [f"{d}/{c}" for d in DOMAINS for c in CLASSES], 2, size=size)


def test_pacs(tmp_path):
    pacs(tmp_path / "pacs", (32, 32))
    data = load_dataset("pacs", tmp_path, download=False)
    assert (data.name, data.classes, data.note) == ("pacs", CLASSES, "32 x 32 copy")
    # two images of each of the 28 pairs: one for training, one for testing
    assert data.train_domains.tolist() == data.test_domains.tolist() == [d for d in range(4) for _ in range(7)]
    assert data.train.y.tolist() == list(range(7)) * 4
    assert data.train.mean == (0.5, 0.5, 0.5)


def test_pacs_note_tells_copies_from_resized_originals(tmp_path):
    pacs(tmp_path / "PACS", (40, 40))
    assert load_dataset("pacs", tmp_path).note == ""
    resized = load_dataset("pacs", tmp_path, image_size=32)
    assert (resized.train.x.shape[2:], resized.note) == ((32, 32), "resized to 32 x 32")


def test_pacs_must_be_whole(tmp_path):
    root = pacs(tmp_path / "pacs", (8, 8))
    tree(root, ["photo/zebra"], 1, size=(8, 8))
    with pytest.raises(DataError, match="has photo/zebra; PACS has the domains"):
        load_dataset("pacs", tmp_path)
    (root / "photo" / "zebra").rename(tmp_path / "elsewhere")
    (root / "sketch" / "dog").rename(root / "sketch" / ".dog")
    with pytest.raises(DataError, match="lacks sketch/dog"):
        load_dataset("pacs", tmp_path)
    with pytest.raises(DataError, match=r"put them into .*empty/pacs as domain/class/image"):
        load_dataset("pacs", tmp_path / "empty")


def test_pacs_is_where_all_domains_are(tmp_path):
    tree(tmp_path / "pacs", ["photo/dog"], 2)
    pacs(tmp_path / "PACS", (32, 32))
    assert len(load_dataset("pacs", tmp_path, download=False).train) == 28


def test_pacs_names_the_first_folder_that_is_wrong(tmp_path):
    pacs(tmp_path / "pacs", (32, 32))
    for place in ("sketch/zebra", "photo/ant"):
        picture(tmp_path / "pacs" / place / "0.png")
    with pytest.raises(DataError, match="has photo/ant; PACS has the domains"):
        load_dataset("pacs", tmp_path, download=False)


@pytest.mark.filterwarnings("ignore")  # as in a user's program: here every warning is an error
def test_a_picture_of_too_many_pixels_is_refused(tmp_path, monkeypatch):
    root = tree(tmp_path / "zoo", ["cat", "ant"], 2)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 29)  # 6 x 5 is one more: Pillow warns, and twice as many it refuses
    with pytest.raises(DataError, match="cannot be read as an image"):
        load(root)
