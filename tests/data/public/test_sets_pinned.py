"""Every public set as it is published (names, moments, files, folders), and the small choices of their readers."""

from __future__ import annotations

import gzip
import http.client
import io
import os
import struct
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from email.message import Message
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from accord.data import load_dataset
from accord.data.federated import Dataset, Pool
from accord.data.files import collection, contents, download, folders, identities, images, packed
from accord.data.files.collection import Collection, Places, find
from accord.data.files.download import Remote, fetch
from accord.data.public import cifar, emnist_letters, fashion_mnist, mnist
from accord.errors import DataError

image = pytest.importorskip("PIL.Image")

MNIST = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
LETTERS = (
    "emnist-letters-train-images-idx3-ubyte",
    "emnist-letters-train-labels-idx1-ubyte",
    "emnist-letters-test-images-idx3-ubyte",
    "emnist-letters-test-labels-idx1-ubyte",
)
BATCHES = ("data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin")
CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
FASHION_CLASSES = "T-shirt/top,trouser,pullover,dress,coat,sandal,shirt,sneaker,bag,ankle boot"
CIFAR100_CLASSES = """
beaver dolphin otter seal whale              aquarium_fish flatfish ray shark trout
orchid poppy rose sunflower tulip            bottle bowl can cup plate
apple mushroom orange pear sweet_pepper      clock keyboard lamp telephone television
bed chair couch table wardrobe               bee beetle butterfly caterpillar cockroach
bear leopard lion tiger wolf                 bridge castle house road skyscraper
cloud forest mountain plain sea              camel cattle chimpanzee elephant kangaroo
fox porcupine possum raccoon skunk           crab lobster snail spider worm
baby boy girl man woman                      crocodile dinosaur lizard snake turtle
hamster mouse rabbit shrew squirrel          maple_tree oak_tree palm_tree pine_tree willow_tree
bicycle bus motorcycle pickup_truck train    lawn_mower rocket streetcar tank tractor
"""  # as the authors list them, by superclass; their numbers are those of the alphabet

# the names of the classes, the mean and the deviation of the train pixels
PUBLISHED: dict[str, tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]] = {
    "mnist": (tuple("0123456789"), (0.1307,), (0.3081,)),
    "mnist5k": (tuple("0123456789"), (0.1307,), (0.3081,)),
    "fashion_mnist": (tuple(FASHION_CLASSES.split(",")), (0.2860,), (0.3530,)),
    "emnist_letters": (tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), (0.1722,), (0.3309,)),
    "cifar10": (tuple(CIFAR10_CLASSES.split()), (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": (tuple(sorted(CIFAR100_CLASSES.split())), (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


@pytest.fixture(autouse=True)
def _empty_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ACCORD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def idx(array: Any) -> bytes:
    array = np.asarray(array, np.uint8)
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def striped(count: int, first: int) -> Any:
    """Images whose pixel at row r and column c is `first` + r, but 200 at row 0, column 27."""
    one = np.repeat(first + np.arange(28), 28).reshape(28, 28)
    one[0, 27] = 200
    return np.stack([one] * count)


def idx_files(names: tuple[str, ...], lowest: int) -> dict[str, bytes]:
    """Three images to learn from, of the classes 0, 1 and 2, and two to be judged by, of the classes 4 and 3."""
    arrays = (striped(3, 10), [lowest, lowest + 1, lowest + 2], striped(2, 60), [lowest + 4, lowest + 3])
    return {name: idx(array) for name, array in zip(names, arrays, strict=True)}


def records(*labels: tuple[int, ...]) -> bytes:
    """Records of these label bytes; a pixel is the last label plus 0, 50 or 100, by its channel."""
    planes = ([*label, *np.repeat([label[-1], label[-1] + 50, label[-1] + 100], 1024)] for label in labels)
    return b"".join(bytes(int(byte) for byte in record) for record in planes)


def cifar10_files() -> dict[str, bytes]:
    return {name: records((number,)) for number, name in enumerate(BATCHES)} | {"test_batch.bin": records((8,), (7,))}


def cifar100_files() -> dict[str, bytes]:
    return {"train.bin": records((3, 40), (1, 90), (0, 99)), "test.bin": records((2, 11), (5, 0))}


def write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def tiny(name: str, root: Path) -> None:
    if name == "cifar10":
        write(root / "cifar10", cifar10_files())
    elif name == "cifar100":
        write(root / "cifar100", cifar100_files())
    elif name != "mnist5k":
        letters = name == "emnist_letters"
        write(root / name, idx_files(LETTERS if letters else MNIST, 1 if letters else 0))


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_a_set_has_its_own_name_classes_and_moments_in_both_parts(name: str, tmp_path: Path) -> None:
    tiny(name, tmp_path)
    classes, mean, std = PUBLISHED[name]
    data = load_dataset(name, tmp_path, download=False)
    assert (data.name, data.classes) == (name, classes)
    plain = load_dataset(name, tmp_path, download=False, normalise=False)
    for pool, bare in ((data.train, plain.train), (data.test, plain.test)):
        assert (pool.mean, pool.std) == (mean, std)
        assert (bare.mean, bare.std) == ((), ())
        assert (pool.x.dtype, pool.y.dtype) == (torch.uint8, torch.int64)
        assert tuple(pool.x.shape[1:]) == ((3, 32, 32) if "cifar" in name else (1, 28, 28))


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "emnist_letters"])
def test_both_parts_of_grey_sets_are_read_upright_with_their_labels(name: str, tmp_path: Path) -> None:
    tiny(name, tmp_path)
    data = load_dataset(name, tmp_path, download=False)
    assert (data.train.y.tolist(), data.test.y.tolist()) == ([0, 1, 2], [4, 3])
    for pool, first in ((data.train, 10), (data.test, 60)):
        right = pool.x[-1, 0].T if name == "emnist_letters" else pool.x[-1, 0]  # letters lie column by column
        assert (int(right[0, 0]), int(right[5, 0]), int(right[0, 5]), int(right[0, 27])) == (
            first,
            first + 5,
            first,
            200,
        )
        assert pool.x.is_contiguous()


def test_both_parts_of_cifar_are_read_with_their_labels_and_red_first(tmp_path: Path) -> None:
    write(tmp_path / "ten", cifar10_files())
    write(tmp_path / "hundred", cifar100_files())
    ten = load_dataset("cifar10", tmp_path / "ten", download=False)
    hundred = load_dataset("cifar100", tmp_path / "hundred", download=False)
    assert (ten.train.y.tolist(), ten.test.y.tolist()) == ([0, 1, 2, 3, 4], [8, 7])
    assert (hundred.train.y.tolist(), hundred.test.y.tolist()) == ([40, 90, 99], [11, 0])
    assert ten.test.x[:, :, 31, 31].tolist() == [[8, 58, 108], [7, 57, 107]]
    assert hundred.test.x[:, :, 0, 0].tolist() == [[11, 61, 111], [0, 50, 100]]
    assert hundred.train.x[:, :, 31, 0].tolist() == [[40, 90, 140], [90, 140, 190], [99, 149, 199]]


MNIST_MD5 = (
    *("f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432"),
    *("9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c"),
)
FASHION_MD5 = (
    *("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe"),
    *("bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310"),
)


@pytest.mark.parametrize(
    ("found", "md5s", "addresses"),
    [
        (
            mnist.COLLECTION,
            MNIST_MD5,
            ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist"),
        ),
        (
            fashion_mnist.COLLECTION,
            FASHION_MD5,
            (
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
            ),
        ),
    ],
    ids=["mnist", "fashion_mnist"],
)
def test_four_files_have_their_published_sums_and_addresses(found: Collection, md5s: Any, addresses: Any) -> None:
    assert (found.files, found.archive, found.inside) == (MNIST, "", "")
    expected = [
        Remote(f"{file}.gz", tuple(f"{address}/{file}.gz" for address in addresses), md5)
        for file, md5 in zip(MNIST, md5s, strict=True)
    ]
    assert list(found.remotes) == expected


@pytest.mark.parametrize(
    ("found", "files", "url", "md5", "inside"),
    [
        (
            cifar.CIFAR10,
            (*BATCHES, "test_batch.bin"),
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "c32a1d4ab5d03f1284b67883e8d87530",
            "cifar-10-batches-bin",
        ),
        (
            cifar.CIFAR100,
            ("train.bin", "test.bin"),
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "03b5dce01913d631647c71ecec9e9cb8",
            "cifar-100-binary",
        ),
        (
            emnist_letters.COLLECTION,
            LETTERS,
            "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
            "58c8d27c78d21e728a6bc7b3cc06412e",
            "gzip",
        ),
    ],
    ids=["cifar10", "cifar100", "emnist_letters"],
)
def test_one_archive_has_its_published_sum_and_address(
    found: Collection, files: tuple[str, ...], url: str, md5: str, inside: str
) -> None:
    name = url.rpartition("/")[2]
    assert (found.files, found.archive, found.inside) == (files, name, inside)
    assert found.remotes == (Remote(name, (url,), md5),)
    assert ("never unpickles" in found.hint) is ("cifar" in found.name)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        *(("mnist", "MNIST/raw"), ("fashion_mnist", "FashionMNIST/raw"), ("emnist_letters", "EMNIST/raw")),
        *(("cifar10", "cifar10/cifar-10-batches-bin"), ("cifar100", "cifar100/cifar-100-binary")),
        *(("cifar10", "cifar-10-batches-bin"), ("cifar100", "cifar-100-binary"), ("emnist_letters", "gzip")),
    ],
)
def test_the_folders_other_tools_make_are_known_and_the_sets_own_goes_first(
    name: str, folder: str, tmp_path: Path
) -> None:
    tiny(name, tmp_path / "made")
    (tmp_path / "data" / folder).parent.mkdir(parents=True)
    (tmp_path / "made" / name).rename(tmp_path / "data" / folder)
    assert len(load_dataset(name, tmp_path / "data", download=False).test) == 2
    tiny(name, tmp_path / "data")
    for file in (tmp_path / "data" / folder).iterdir():
        if not folder.startswith(name):  # inside the set's own folder, that of the archive goes first
            file.write_bytes(b"")
    assert len(load_dataset(name, tmp_path / "data", download=False).test) == 2


# Where the folders of data lie.


@pytest.mark.parametrize("cache", ["relative", "./here", "", None])
def test_a_cache_folder_that_is_not_absolute_does_not_count(cache: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the XDG rules say: such a path is to be ignored."""
    monkeypatch.setenv("HOME", "/home/ann")
    if cache is None:
        monkeypatch.delenv("XDG_CACHE_HOME")
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
    assert Places.usual(None, True, None).roots == (Path("/home/ann/.cache/accord"),)
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert Places.usual(None, True, None).roots == (Path("/var/cache/accord"),)


def test_a_tilde_is_the_home_folder_wherever_a_folder_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ACCORD_DATA", "~/env")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert Places.usual("~/given", False, None).roots == (tmp_path / "given", tmp_path / "env", Path("/c/accord"))
    assert Places.usual(Path("~/given"), False, None).roots[0] == tmp_path / "given"
    assert Places.usual("", False, None).roots[0] == Path(), "an empty folder is a given one"
    assert Places(()).own("~/nowhere.csv") == tmp_path / "nowhere.csv"


def test_a_path_of_ones_own_is_taken_as_it_is_before_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    places = Places((tmp_path / "one", tmp_path / "two"))
    assert places.own("a.csv") == Path("a.csv")
    for folder in ("two", "one", "."):  # each goes before those that were there
        write(tmp_path / folder, {"a.csv": b""})
        assert places.own("a.csv") == (Path("a.csv") if folder == "." else tmp_path / folder / "a.csv")


def test_names_are_looked_for_in_their_order_then_the_folder_itself_then_the_next_folder() -> None:
    looked = Places((Path("/a"), Path("/b"))).candidates("x", "y")
    assert looked == [Path(p) for p in ("/a/x", "/a/y", "/a", "/b/x", "/b/y", "/b")]


TOY = Collection(
    "toy", ("1.bin", "2.bin"), (Remote("toy.tar", ("https://example.org/toy.tar",), ""),), "toy.tar", "inner", ("Toy",)
)


def test_loose_files_go_before_the_archive_beside_them_and_the_inner_folder_before_both(tmp_path: Path) -> None:
    places = Places((tmp_path,), download=False)
    files = {"1.bin": b"1", "2.bin": b"2"}
    write(tmp_path / "Toy", {"toy.tar": b""})
    assert find(TOY, places).archive == tmp_path / "Toy" / "toy.tar"
    write(tmp_path / "Toy", files)
    assert find(TOY, places).paths == {name: tmp_path / "Toy" / name for name in files}
    write(tmp_path / "Toy" / "inner", files)
    assert find(TOY, places).paths == {name: tmp_path / "Toy" / "inner" / name for name in files}
    write(tmp_path / "toy", {"toy.tar": b""})
    assert find(TOY, places).archive == tmp_path / "toy" / "toy.tar", "an earlier folder"


def test_an_archive_is_fetched_into_the_sets_folder_of_the_first_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def arrive(remote: Remote, folder: Path, progress: Any) -> None:
        asked.append((remote, folder, progress))
        write(folder, {remote.name: b""})

    monkeypatch.setattr(collection, "fetch", arrive)
    told = lambda *_: None  # noqa: E731
    write(tmp_path / "a" / "toy", {"1.bin": b"1"})  # one of the files does not make the archive needless
    found = find(TOY, Places((tmp_path / "a", tmp_path / "b"), True, told))
    assert found.archive == tmp_path / "a" / "toy" / "toy.tar"
    assert asked == [(TOY.remotes[0], tmp_path / "a" / "toy", told)]


# What the files hold.


def test_an_archive_that_lacks_a_file_is_named_with_where_to_get_it(tmp_path: Path) -> None:
    files = idx_files(LETTERS, 1)
    with zipfile.ZipFile(tmp_path / "gzip.zip", "w") as archive:
        for name in LETTERS[:3]:
            archive.writestr(f"gzip/{name}.gz", gzip.compress(files[name]))
    with pytest.raises(DataError) as error:
        load_dataset("emnist_letters", tmp_path, download=False)
    assert str(error.value) == (
        f"{tmp_path / 'gzip.zip'} holds no gzip/emnist-letters-test-labels-idx1-ubyte; replace it by the published "
        "archive, https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
    )


def test_what_an_archive_holds_can_be_written_to_and_says_where_it_was(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "toy.tar", "w") as archive:
        for name in ("2.bin", "1.bin"):
            member = tarfile.TarInfo(f"./inner/{name}")
            member.size = 1
            archive.addfile(member, io.BytesIO(name[:1].encode()))
    first, second = contents.read_collection(TOY, Places((tmp_path,), download=False))
    assert (first.data.tolist(), second.data.tolist()) == ([ord("1")], [ord("2")])
    assert first.where == f"{tmp_path / 'toy.tar'} (./inner/1.bin)"
    assert first.data.flags.writeable


@pytest.mark.parametrize(
    ("error", "words"),
    [
        *((EOFError("end"), "damaged or cut short"), (zlib.error("bits"), "damaged or cut short")),
        *((gzip.BadGzipFile("magic"), "damaged or cut short"), (tarfile.ReadError("tar"), "damaged or cut short")),
        *((zipfile.BadZipFile("zip"), "damaged or cut short"), (RuntimeError("password"), "damaged or cut short")),
        *((struct.error("short"), "damaged or cut short"), (ValueError("x"), "damaged or cut short")),
        *((KeyError("x"), "damaged or cut short"), (OverflowError("x"), "damaged or cut short")),
        *((MemoryError("x"), "damaged or cut short"), (OSError(5, "Input/output error"), "cannot be read: Input/out")),
        (OSError("odd"), "cannot be read: odd"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_each_way_in_which_reading_fails_is_explained(error: Exception, words: str) -> None:
    with pytest.raises(DataError, match=f"^it (is )?{words}"), contents.explained("it"):
        raise error


@pytest.mark.parametrize("position", [0, 2])
@pytest.mark.parametrize("shape", [(27, 28), (28, 27), (32, 32)])
def test_images_of_another_size_are_refused_in_both_parts(position: int, shape: Any, tmp_path: Path) -> None:
    files = idx_files(MNIST, 0)
    count = (3, 0, 2)[position]
    write(tmp_path, files | {MNIST[position]: idx(np.zeros((count, *shape)))})
    with pytest.raises(DataError, match=rf"{MNIST[position]} holds images of {shape[0]} x {shape[1]}; they must be 28"):
        load_dataset("mnist", tmp_path, download=False)


# Pictures.


def picture(path: Path, colour: Any = (10, 20, 30), size: tuple[int, int] = (2, 2), mode: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.new(mode or ("L" if isinstance(colour, int) else "RGB"), size, colour).save(path)
    return path


@pytest.mark.parametrize("end", ["png", "jpg", "jpeg", "bmp", "gif", "webp", "tif", "tiff", "ppm", "PNG", "JPG"])
def test_every_usual_ending_is_a_picture(end: str, tmp_path: Path) -> None:
    path = picture(tmp_path / f"a.{end}", (200, 200, 200), (8, 8))
    assert folders.pictures_in(tmp_path) == [path]
    assert images.read_images([path], None).shape == (1, 3, 8, 8)


def test_a_grey_map_is_a_picture_and_a_folder_of_such_a_name_is_none(tmp_path: Path) -> None:
    path = picture(tmp_path / "b.pgm", 9)
    (tmp_path / "a.png").mkdir()
    (tmp_path / "__MACOSX").mkdir()
    assert folders.pictures_in(tmp_path) == [path]
    assert images.read_images([path], None).tolist() == [[[[9, 9], [9, 9]]]]
    assert [found.name for found in folders._folders(tmp_path)] == ["a.png"]


def test_a_size_is_height_and_width_and_between_pixels_it_is_linear(tmp_path: Path) -> None:
    wide = tmp_path / "a.png"
    image.fromarray(np.array([[0, 100]], np.uint8)).save(wide)
    assert images.read_images([wide], (1, 4)).tolist() == [[[[0, 25, 75, 100]]]]
    assert images.read_images([wide], (3, 2)).tolist() == [[[[0, 100]] * 3]]
    assert images.read_images([wide], 2).tolist() == [[[[0, 100]] * 2]]
    assert images.read_images([wide], None).tolist() == [[[[0, 100]]]]


@pytest.mark.parametrize("colour_first", [True, False])
def test_one_picture_in_colour_makes_all_of_them_so(colour_first: bool, tmp_path: Path) -> None:
    paths = [picture(tmp_path / "a.png", 7), picture(tmp_path / "b.png", (1, 2, 3))]
    found = images.read_images(paths[::-1] if colour_first else paths, None)[:, :, 0, 0].tolist()
    assert found == ([[1, 2, 3], [7, 7, 7]] if colour_first else [[7, 7, 7], [1, 2, 3]])
    veiled = picture(tmp_path / "c.png", (9, 128), mode="LA")
    assert images.read_images([paths[0], veiled], None)[:, :, 0, 0].tolist() == [[7], [9]]
    inks = picture(tmp_path / "d.tif", (0, 0, 0, 255), mode="CMYK")
    assert images.read_images([inks], None)[:, :, 0, 0].tolist() == [[0, 0, 0]]


def test_pictures_too_many_for_the_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = picture(tmp_path / "a.png")

    def full(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(images.np, "empty", full)
    with pytest.raises(DataError, match="2 images of 5 x 3 do not fit into memory; give a smaller image_size"):
        images.read_images([path, path], (3, 5))


def test_train_and_test_folders_may_be_written_large_and_their_names_are_numbered_together(tmp_path: Path) -> None:
    for place, shade in (("Train/rome/dog", 1), ("Train/aix/dog", 2), ("TEST/nice/cat", 3), ("TEST/rome/dog", 4)):
        picture(tmp_path / "f" / place / "0.png", shade)
    data = load_dataset("folder", path=tmp_path / "f")
    assert data.classes == ("cat", "dog")
    assert (data.train.y.tolist(), data.test.y.tolist()) == ([1, 1], [0, 1])
    assert data.train_domains is not None
    assert data.test_domains is not None
    assert (data.train_domains.tolist(), data.test_domains.tolist()) == ([0, 2], [1, 2]), "aix, nice, rome"
    assert (data.train.x[:, 0, 0, 0].tolist(), data.test.x[:, 0, 0, 0].tolist()) == ([2, 1], [3, 4])
    assert (data.train.mean, data.train.std, data.test.mean, data.test.std) == ((0.5,),) * 4


# Sets of pictures.

MARKET = {
    "bounding_box_train/0007_c2s1_000001_00.png": 1,
    "bounding_box_train/0002_c6s3_000001_00.png": 2,
    "bounding_box_train/-1_c1s1_000001_00.png": 9,
    "query/0003_c5s1_000001_00.png": 3,
    "query/-1_c1s1_000001_00.png": 9,
    "bounding_box_test/0003_c4s2_000001_00.png": 4,
    "bounding_box_test/0000_c3s2_000001_00.png": 5,
}
MSMT = {
    "train/0000/0000_000_15_0303morning_0015_0.png": 1,
    "train/0001/0001_000_02_0303morning_0015_0.png": 2,
    "train/0001/0001_001_03_0303morning_0015_0.png": 6,
    "test/0000/0000_000_14_0303noon_0015_0.png": 3,
    "test/0000/0000_001_13_0303noon_0015_0.png": 4,
    "test/0001/0001_000_12_0303noon_0015_0.png": 5,
}
MSMT_LISTS = {
    "list_train.txt": b"0001/0001_000_02_0303morning_0015_0.png 1\n\n0000/0000_000_15_0303morning_0015_0.png 0\n",
    "list_query.txt": b"0000/0000_000_14_0303noon_0015_0.png 0\n",
    "list_gallery.txt": b"0001/0001_000_12_0303noon_0015_0.png 1\n0000/0000_001_13_0303noon_0015_0.png 0\n",
}
VERI = {
    "image_train/0001_c020_00016450_0.png": 1,
    "image_train/0004_c001_00016450_0.png": 2,
    "image_query/0002_c003_00016450_0.png": 3,
    "image_test/0002_c019_00016450_0.png": 4,
    "image_test/0005_c010_00016450_0.png": 5,
}


def gallery(root: Path, files: dict[str, int], lists: dict[str, bytes] | None = None) -> Path:
    for name, shade in files.items():
        picture(root / name, (shade, 0, 0))
    write(root, lists or {})
    return root


# the files, the lists; then shades and classes of both parts, cameras, names of the classes, as the names say them
SEARCHES: dict[str, tuple[Any, ...]] = {
    "market1501": (MARKET, {}, [2, 1], [3, 5, 4], [0, 1], [3, 2, 3], [5, 3, 4], ("0002", "0007", "0000", "0003")),
    "msmt17": (
        *(MSMT, MSMT_LISTS, [2, 1], [3, 5, 4], [1, 0], [2, 3, 2], [14, 12, 13]),
        ("train-0000", "train-0001", "test-0000", "test-0001"),
    ),
    "veri776": (VERI, {}, [1, 2], [3, 4, 5], [0, 1], [2, 2, 3], [3, 19, 10], ("0001", "0004", "0002", "0005")),
}
SEARCH_FOLDERS = [
    *(("market1501", "market1501"), ("market1501", "Market-1501-v15.09.15"), ("market1501", "market")),
    *(("market1501", ""), ("msmt17", "msmt17"), ("msmt17", "MSMT17"), ("msmt17", "MSMT17_V1"), ("msmt17", "")),
    *(("veri776", "veri776"), ("veri776", "VeRi"), ("veri776", "VeRi-776"), ("veri776", "")),
]


@pytest.mark.parametrize(("name", "folder"), SEARCH_FOLDERS)
def test_searches_are_read_from_every_usual_folder(name: str, folder: str, tmp_path: Path) -> None:
    files, lists, train, test, known, asked, cameras, classes = SEARCHES[name]
    gallery(tmp_path / "data" / folder, files, lists)
    data = load_dataset(name, tmp_path / "data", height=4, width=3)
    assert (data.name, data.classes, data.note) == (name, classes, "resized to 4 x 3")
    assert (tuple(data.train.x.shape[1:]), tuple(data.test.x.shape[1:])) == ((3, 4, 3), (3, 4, 3))
    assert (data.train.x[:, 0, 0, 0].tolist(), data.test.x[:, 0, 0, 0].tolist()) == (train, test)
    assert (data.train.y.tolist(), data.test.y.tolist()) == (known, asked)
    assert data.search is not None
    assert (data.search.queries, data.search.cameras.tolist()) == (1, cameras)
    assert data.train.mean == data.train.std == data.test.mean == data.test.std == (0.5, 0.5, 0.5)
    plain = load_dataset(name, tmp_path / "data", height=4, width=3, normalise=False)
    assert plain.train.mean == plain.train.std == plain.test.mean == plain.test.std == ()


@pytest.mark.parametrize(
    ("name", "size"), [("market1501", (256, 128)), ("msmt17", (256, 128)), ("veri776", (256, 256))]
)
def test_searches_have_the_size_that_is_usual_for_them(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    gallery(tmp_path / name, *SEARCHES[name][:2])
    data = load_dataset(name, tmp_path)
    assert tuple(data.test.x.shape[2:]) == size
    assert data.note == f"resized to {size[0]} x {size[1]}"


def test_people_held_out_for_validation_are_trained_after_the_others(tmp_path: Path) -> None:
    held = {"list_val.txt": b"0001/0001_001_03_0303morning_0015_0.png 1\n"}
    gallery(tmp_path / "msmt17", MSMT, MSMT_LISTS | held)
    data = load_dataset("msmt17", tmp_path, height=1, width=1)
    assert (data.train.x[:, 0, 0, 0].tolist(), data.train.y.tolist()) == ([2, 1, 6], [1, 0, 1])


@pytest.mark.parametrize("part", ["train", "query", "test"])
def test_a_list_of_vehicles_says_which_pictures_count_and_in_which_order(part: str, tmp_path: Path) -> None:
    root = gallery(tmp_path / "VeRi", VERI)
    for car, shade in ((8, 11), (7, 12), (9, 13)):
        picture(root / f"image_{part}" / f"{car:04d}_c004_00016450_0.png", (shade, 0, 0))
    write(root, {f"name_{part}.txt": b"0009_c004_00016450_0.png\r\n\r\n 0007_c004_00016450_0.png \r\n"})
    data = load_dataset("veri776", tmp_path, height=1, width=1)
    shades = [*data.train.x[:, 0, 0, 0].tolist(), *data.test.x[:, 0, 0, 0].tolist()]
    assert shades == {"train": [13, 12, 3, 4, 5], "query": [1, 2, 13, 12, 4, 5], "test": [1, 2, 3, 13, 12]}[part]
    write(root, {f"name_{part}.txt": b"../image_query/0002_c003_00016450_0.png\n"})
    with pytest.raises(DataError, match=f"name_{part}.txt names '../image_query/.*', which is no picture of"):
        load_dataset("veri776", tmp_path)


def test_a_list_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.txt").write_bytes(b"\xff\xfe\xfa")
    for name in ("odd.txt", "none.txt"):
        with pytest.raises(DataError, match=f"{name} cannot be read as a list of files"):
            identities.listed(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "source", "wanted"),
    [
        *(("market1501", "https://zheng-lab.cecs.anu.edu.au/Project/project_reid.html", None),),
        *(("msmt17", "https://www.pkuvmc.com/dataset.html", "train, test"),),
        *(("veri776", "https://vehiclereid.github.io/VeRi", "image_train, image_query, image_test"),),
        *(("cub200", "https://www.vision.caltech.edu/datasets/cub_200_2011", "images"),),
        *(("cub50", "https://www.vision.caltech.edu/datasets/cub_200_2011", "train, test"),),
    ],
)
def test_who_asks_for_pictures_is_told_where_and_which_folders(
    name: str, source: str, wanted: str | None, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as error:
        load_dataset(name, tmp_path)
    wanted = wanted or "bounding_box_train, query, bounding_box_test"
    assert str(error.value).endswith(f"Ask for them at {source} and put the folders {wanted} into {tmp_path / name}")


@pytest.mark.parametrize("folder", ["cub200", "CUB_200_2011", ""])
def test_birds_belong_to_their_numbers_whatever_the_order_of_the_lists(folder: str, tmp_path: Path) -> None:
    root = tmp_path / "data" / folder
    names = {1: "010.Crow/a.png", 2: "002.Wren/b.png", 3: "002.Wren/c.png", 4: "010.Crow/d.png"}
    for number, name in names.items():
        picture(root / "images" / name, (number, 0, 0), (5, 7))
    write(
        root,
        {
            "images.txt": "".join(f"{number} {name}\n" for number, name in names.items()).encode(),
            "image_class_labels.txt": b"4 10\n3 2\n2 2\n1 10\n",
            "train_test_split.txt": b"2 1\n1 1\n4 0\n3 0\n",
        },
    )
    data = load_dataset("cub200", tmp_path / "data", image_size=3)
    assert (data.name, data.classes, data.note) == ("cub200", ("002", "010"), "")
    assert (data.train.x[:, 0, 0, 0].tolist(), data.train.y.tolist()) == ([1, 2], [1, 0])
    assert (data.test.x[:, 0, 0, 0].tolist(), data.test.y.tolist()) == ([3, 4], [0, 1])
    assert tuple(data.test.x.shape[1:]) == (3, 3, 3)
    assert data.train.mean == data.test.std == (0.5, 0.5, 0.5)
    plain = load_dataset("cub200", tmp_path / "data", normalise=False)
    assert tuple(plain.test.x.shape[1:]) == (3, 224, 224)
    assert plain.train.mean == plain.test.std == ()
    assert load_dataset("cub200", tmp_path / "data", image_size=None).train.x.shape[2:] == (7, 5)
    (root / "images").rename(root / "pictures")
    with pytest.raises(DataError, match="cub200: its pictures are not on this machine"):
        load_dataset("cub200", tmp_path / "data")


def test_a_size_that_is_given_goes_before_pictures_packed_in_another(tmp_path: Path) -> None:
    for part, shade in (("train", 1), ("test", 2)):
        picture(tmp_path / "cub50" / part / "wren" / "a.png", (shade, 0, 0), (6, 6))
    other = Pool(torch.full((1, 3, 4, 4), 77, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64))
    packed.pack(Dataset("cub50", other, Pool(other.x + 1, other.y.clone()), ("crow",)), tmp_path / "cub50")
    note = "first 50 of 200 classes, 64 x 64 copy"
    quick = load_dataset("cub50", tmp_path)
    assert (quick.name, quick.classes, quick.note) == ("cub50", ("crow",), note)
    assert (int(quick.train.x[0, 0, 0, 0]), int(quick.test.x[0, 0, 0, 0])) == (77, 78)
    sized = load_dataset("cub50", tmp_path, image_size=3)
    assert (sized.name, sized.classes, sized.note) == ("cub50", ("wren",), note)
    assert (tuple(sized.train.x.shape), int(sized.test.x[0, 0, 0, 0])) == ((1, 3, 3, 3), 2)
    for size in (None, 3):
        assert load_dataset("cub50", tmp_path, image_size=size).test.mean == (0.5, 0.5, 0.5)
        assert load_dataset("cub50", tmp_path, image_size=size, normalise=False).test.mean == ()


def test_packed_pictures_are_looked_for_in_the_sets_folder_first_and_need_not_lie_in_a_row(tmp_path: Path) -> None:
    x = torch.arange(12, dtype=torch.uint8).reshape(1, 1, 3, 4)
    labels = torch.zeros(1, dtype=torch.int64)
    (tmp_path / "birds").mkdir()
    for folder, pixels in ((tmp_path, x), (tmp_path / "birds", x.transpose(2, 3))):
        packed.pack(Dataset("birds", Pool(pixels, labels), Pool(pixels + 1, labels.clone()), ("a",)), folder)
    found = packed.packed_dataset(Places((tmp_path,)), "birds", True)
    assert found is not None
    assert found.train.x.tolist() == [[[[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]]]]


DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
THINGS = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def test_the_share_the_seed_and_the_moments_of_pacs_are_those_asked_for(tmp_path: Path) -> None:
    for domain, domain_name in enumerate(DOMAINS):
        for thing in THINGS:
            for n in range(4):
                picture(tmp_path / "pacs" / domain_name / thing / f"{n}.png", (domain, n, 0))
    data = load_dataset("pacs", tmp_path, test_fraction=0.5, normalise=False)
    assert (data.name, data.classes, len(data.train), len(data.test)) == ("pacs", THINGS, 56, 56)
    assert data.train.mean == data.test.std == ()
    assert data.test_domains is not None
    assert data.test.x[:, 0, 0, 0].tolist() == data.test_domains.tolist() == [d for d in range(4) for _ in range(14)]
    default = load_dataset("pacs", tmp_path)
    assert (len(default.test), default.test.mean, default.train.std) == (28, (0.5,) * 3, (0.5,) * 3)
    drawn = [load_dataset("pacs", tmp_path, split_seed=seed).test.x[:, 1, 0, 0].tolist() for seed in (0, 1)]
    assert drawn[0] == default.test.x[:, 1, 0, 0].tolist()
    assert drawn[0] != drawn[1]
    with pytest.raises(DataError, match=r"by way of https://domaingeneralization\.github\.io and put them into"):
        load_dataset("pacs", tmp_path / "none")


# Downloads.


class Answer(io.BytesIO):
    """A server's answer without a server."""

    status = 200

    def __init__(self, body: bytes, length: str) -> None:
        super().__init__(body)
        self.headers = {"Content-Length": length}


MD5_OF_ABC = "900150983cd24fb0d6963f7d28e17f72"  # the third example of RFC 1321


def test_a_file_is_asked_for_as_it_is_written_through_and_named_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, str]] = []
    done: list[str] = []
    replace, fsync = os.replace, os.fsync

    def answer(request: Any, timeout: float) -> Answer:
        asked.append(dict(request.header_items()))
        return Answer(b"abc", "unknown")

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("fsync"), fsync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("replace"), replace(a, b))[1])
    path = fetch(Remote("a.gz", ("https://example.org/a.gz",), MD5_OF_ABC), tmp_path)
    assert (path, path.read_bytes(), done) == (tmp_path / "a.gz", b"abc", ["fsync", "replace"])
    assert asked == [{"User-agent": "accord-fl", "Accept-encoding": "identity"}]


def test_an_address_that_keeps_breaking_off_is_given_up_for_the_next_which_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bytes]] = []

    def transfer(url: str, part: Path, *_: Any) -> None:
        asked.append((url, part.read_bytes() if part.exists() else b""))
        with open(part, "ab") as stream:
            stream.write(b"c" if url == "two" else b"a" if len(asked) == 1 else b"b")
        if url != "two":
            raise download._InterruptedError("broke off")

    monkeypatch.setattr(download, "_transfer", transfer)
    path = fetch(Remote("a", ("one", "two", "three"), MD5_OF_ABC), tmp_path, attempts=2, pause=0)
    assert path.read_bytes() == b"abc"
    assert asked == [("one", b""), ("one", b"a"), ("two", b"ab")]


def test_a_file_system_without_locks_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(download, "_transfer", lambda url, part, *_: part.write_bytes(b"abc"))
    assert fetch(Remote("a", ("one",), MD5_OF_ABC), tmp_path).read_bytes() == b"abc"


def test_files_as_large_as_a_gibibyte_are_read_and_twice_that_is_fetched() -> None:
    assert (contents.MAX_BYTES, download.MAX_BYTES) == (1024**3, 2 * 1024**3)


def test_a_connection_that_breaks_while_it_is_read_leaves_its_part_and_says_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Answer):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() == 2:
                raise http.client.IncompleteRead(b"")
            return super().read(size)

    monkeypatch.setattr(urllib.request, "urlopen", lambda request, timeout: Broken(b"ab", "3"))
    with pytest.raises(DataError, match=r"https://example\.org/a: the connection broke off after 2 bytes"):
        fetch(Remote("a", ("https://example.org/a",), MD5_OF_ABC), tmp_path, attempts=1)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.part", b"ab")]


@pytest.mark.parametrize("error", [http.client.BadStatusLine("odd"), OSError("no route"), TimeoutError("late")])
def test_an_address_that_does_not_answer_is_asked_once(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def silent(request: Any, timeout: float) -> None:
        asked.append(request.full_url)
        raise error

    monkeypatch.setattr(urllib.request, "urlopen", silent)
    with pytest.raises(
        DataError, match=r"a could not be downloaded:\n  http://one: no connection \(.*\n  http://two: no"
    ):
        fetch(Remote("a", ("http://one", "http://two"), ""), tmp_path, pause=0)
    assert asked == ["http://one", "http://two"]


def test_a_part_that_stays_wrong_from_the_start_is_deleted_and_the_next_address_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bytes]] = []

    def transfer(url: str, part: Path, *_: Any) -> None:
        asked.append((url, part.read_bytes() if part.exists() else b""))
        part.write_bytes(b"abc" if url == "two" else b"wrong")

    monkeypatch.setattr(download, "_transfer", transfer)
    write(tmp_path, {"a.part": b"old"})
    assert fetch(Remote("a", ("one", "two"), MD5_OF_ABC), tmp_path).read_bytes() == b"abc"
    assert asked == [("one", b"old"), ("one", b""), ("two", b"")]


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(urllib.request, "urlopen", lambda request, timeout: Answer(b"abc", "3"))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"cannot write into .*: No space left on device\. Make room"):
        fetch(Remote("a", ("http://one",), MD5_OF_ABC), tmp_path)


# What is said and refused.


def test_what_is_missing_is_said_in_full(tmp_path: Path) -> None:
    remotes = tuple(Remote(f"{n}.gz", (f"https://first/{n}.gz", f"https://second/{n}.gz"), "") for n in "abc")
    wanted = Collection("toy", ("a", "b", "c"), remotes, folders=("Toy",), hint="Mind the gap.")
    write(tmp_path / "toy", {"b": b""})
    write(tmp_path / "Toy", {"a": b"", "c.gz": b""})
    with pytest.raises(DataError) as error:
        find(wanted, Places((tmp_path,), download=False))
    assert str(error.value).splitlines() == [
        "toy: its files are not on this machine and downloading is switched off",
        "Looked in:",
        f"  {tmp_path / 'toy'} (has b, but lacks a, c)",
        f"  {tmp_path / 'Toy'} (has a, c, but lacks b)",
        f"  {tmp_path}",
        f"Put into {tmp_path / 'toy'}:",
        "  a.gz  from https://first/a.gz",
        "  c.gz  from https://first/c.gz",
        "Mind the gap.",
    ]


def test_dotted_names_may_be_gzipped_too(tmp_path: Path) -> None:
    files = idx_files(MNIST, 0)
    write(tmp_path, {name.replace("-idx", ".idx") + ".gz": gzip.compress(data) for name, data in files.items()})
    assert load_dataset("mnist", tmp_path, download=False).test.y.tolist() == [4, 3]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("market1501", "query/x0003_c5s1_000001_00.png"),
        ("market1501", "query/0003_c5_000001_00.png"),
        ("veri776", "image_query/x0002_c003_00016450_0.png"),
        ("veri776", "image_query/0002_003_00016450_0.png"),
    ],
)
def test_a_name_must_begin_with_the_identity_and_name_the_camera(name: str, file: str, tmp_path: Path) -> None:
    gallery(tmp_path / name, SEARCHES[name][0] | {file: 1})
    with pytest.raises(DataError, match=f"{file}: its name does not say whose picture it is and by which camera"):
        load_dataset(name, tmp_path)


def test_grey_pictures_of_a_search_have_one_channel_and_one_moment(tmp_path: Path) -> None:
    for name in MARKET:
        picture(tmp_path / "market1501" / name, 5)
    data = load_dataset("market1501", tmp_path, height=2, width=1)
    assert (tuple(data.train.x.shape), data.train.mean, data.test.std) == ((2, 1, 2, 1), (0.5,), (0.5,))


def test_the_first_place_that_holds_every_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCORD_DATA", str(tmp_path / "b"))
    (tmp_path / "a" / "market1501" / "query").mkdir(parents=True)  # not all of it
    shades = {name: shade + 100 for name, shade in MARKET.items()}
    gallery(tmp_path / "b" / "market1501", shades)
    small = {"height": 1, "width": 1}
    assert int(load_dataset("market1501", tmp_path / "a", **small).train.x[0, 0]) == 102
    gallery(tmp_path / "a" / "market", MARKET)
    assert int(load_dataset("market1501", tmp_path / "a", **small).train.x[0, 0]) == 2
    gallery(tmp_path / "a" / "Market-1501-v15.09.15", shades)
    assert int(load_dataset("market1501", tmp_path / "a", **small).train.x[0, 0]) == 102


def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(DataError, match=f"^{tmp_path} cannot be read: Permission denied$"):
        folders.list_parts(tmp_path)


@pytest.mark.parametrize("mode", ["F", "I", "I;16"])
def test_pixels_of_more_than_a_byte_are_refused(mode: str, tmp_path: Path) -> None:
    path = picture(tmp_path / "a.tif", 7, mode=mode)
    with pytest.raises(DataError, match=f"a.tif has '{mode}' pixels; save it with 8 bits per channel"):
        images.read_images([path], None)


def bird_lists(root: Path, name: str = "001.Wren/a.png", species: str = "1", learned: str = "1") -> Path:
    """Two birds: the first as given, the second one to be judged by."""
    for file in ("001.Wren/a.png", "001.Wren/b.png", "../secret.png"):
        picture(root / "images" / file)
    lists = (
        ("images", name, "001.Wren/b.png"),
        ("image_class_labels", species, "1"),
        ("train_test_split", learned, "0"),
    )
    write(root, {f"{file}.txt": f"1 {first}\n2 {second}\n".encode() for file, first, second in lists})
    return root


def test_birds_outside_their_folder_are_not_read(tmp_path: Path) -> None:
    root = bird_lists(tmp_path / "cub200")
    assert len(load_dataset("cub200", tmp_path, image_size=2).train) == 1
    for name in ("../secret.png", str(root / "secret.png")):
        bird_lists(root, name)
        with pytest.raises(DataError, match=r"secret\.png' in a list of .*images leads out of it"):
            load_dataset("cub200", tmp_path, image_size=2)


@pytest.mark.parametrize(("species", "learned"), [("wren", "1"), ("1", "2"), ("1", "train"), ("-1", "0"), ("²", "1")])
def test_birds_of_no_species_or_of_no_part_are_refused(species: str, learned: str, tmp_path: Path) -> None:
    bird_lists(tmp_path / "cub200", species=species, learned=learned)
    with pytest.raises(DataError, match=r"image_class_labels\.txt must hold numbers .* train_test_split\.txt 1 or 0"):
        load_dataset("cub200", tmp_path, image_size=2)


@pytest.mark.parametrize("line", ["{}/0000_000_14_x.png 0", "0000/0000_000_14_0303noon_0015_0.png ²"])
def test_people_outside_their_folder_and_without_a_number_are_refused(line: str, tmp_path: Path) -> None:
    picture(tmp_path / "0000_000_14_x.png")
    gallery(tmp_path / "msmt17", MSMT, MSMT_LISTS | {"list_query.txt": line.format(tmp_path).encode()})
    with pytest.raises(DataError, match=r"list_query\.txt: .* is no file and identity"):
        load_dataset("msmt17", tmp_path, height=1, width=1)


def test_pacs_without_folders_of_classes_is_refused_by_name(tmp_path: Path) -> None:
    for domain in DOMAINS:
        picture(tmp_path / "pacs" / domain / "a.png")
    with pytest.raises(DataError, match="lacks art_painting/dog; PACS has the domains"):
        load_dataset("pacs", tmp_path)


def test_a_picture_beside_the_classes_of_a_later_domain_is_refused(tmp_path: Path) -> None:
    for place in ("f/aix/cat/0.png", "f/lyon/cat/0.png", "f/lyon/stray.png"):
        picture(tmp_path / place)
    with pytest.raises(DataError, match="lyon holds both images and folders"):
        load_dataset("folder", path=tmp_path / "f")


@pytest.mark.parametrize(("part", "asked"), [(b"old", [3, 0]), (b"", [0])])
def test_a_range_that_is_refused_without_a_word_on_the_length(
    part: bytes, asked: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a part it is thrown away and all is asked for; without one there is nothing to try again."""
    seen: list[int] = []

    def refuse(request: Any, timeout: float) -> None:
        seen.append(int((request.get_header("Range") or "bytes=0-")[6:-1]))
        raise urllib.error.HTTPError(request.full_url, 416, "no", Message(), io.BytesIO())

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    write(tmp_path, {"a.part": part})
    with pytest.raises(DataError, match="the server answered 416 no"):
        fetch(Remote("a", ("http://one",), MD5_OF_ABC), tmp_path, pause=0)
    assert seen == asked
