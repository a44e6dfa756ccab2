"""MNIST-like and CIFAR files, written here in the published formats: found, read, refused when damaged."""

from __future__ import annotations

import gzip
import io
import shutil
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from accord.data.public import load_dataset
from accord.errors import DataError

MNIST = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
EMNIST = tuple(
    f"emnist-letters-{part}-{kind}-ubyte" for part in ("train", "test") for kind in ("images-idx3", "labels-idx1")
)


@pytest.fixture(autouse=True)
def _empty_home(monkeypatch, tmp_path):
    monkeypatch.delenv("ACCORD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def idx_bytes(array: np.ndarray) -> bytes:
    """The format as its authors describe it: 0, 0, type 8, axes, big-endian lengths, bytes."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def digits(count: int, seed: int, low: int = 0, high: int = 10) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, 28, 28))
    return images.astype(np.uint8), np.resize(np.arange(low, high), count).astype(np.uint8)


def contents(names: tuple[str, ...], low: int = 0, high: int = 10) -> dict[str, bytes]:
    arrays = [*digits(30, 1, low, high), *digits(12, 2, low, high)]
    return {name: idx_bytes(array) for name, array in zip(names, arrays, strict=True)}


def write(folder: Path, files: dict[str, bytes], end: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / f"{name}{end}").write_bytes(gzip.compress(data) if end == ".gz" else data)
    return folder


def load(name: str, folder: Path | None, **options: object):
    return load_dataset(name, folder, download=False, **options)


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("sub", ["mnist", "", "MNIST/raw"])
def test_mnist_raw_and_gzipped_in_all_places(tmp_path, end, sub):
    write(tmp_path / "d" / sub, contents(MNIST), end)
    data = load("mnist", tmp_path / "d")
    assert torch.equal(data.train.x[:, 0], torch.from_numpy(digits(30, 1)[0]))
    assert torch.equal(data.test.x[:, 0], torch.from_numpy(digits(12, 2)[0]))
    assert data.train.y.tolist() == [*range(10)] * 3
    assert data.test.y.tolist() == [*range(10), 0, 1]
    assert data.train.mean == (0.1307,)


def test_dotted_names_are_known(tmp_path):
    write(tmp_path / "d", {name.replace("-idx", ".idx"): data for name, data in contents(MNIST).items()})
    assert len(load("mnist", str(tmp_path / "d")).train) == 30


def test_of_two_spellings_the_first_is_read(tmp_path):
    """As published, then gzipped, then with a dot."""
    files = contents(MNIST)
    other = files | {MNIST[0]: idx_bytes(np.zeros((30, 28, 28)))}
    write(tmp_path / "d", files)
    write(tmp_path / "d", other, ".gz")
    assert torch.equal(load("mnist", tmp_path / "d").train.x[:, 0], torch.from_numpy(digits(30, 1)[0]))
    write(tmp_path / "e", files, ".gz")
    write(tmp_path / "e", {name.replace("-idx", ".idx"): data for name, data in other.items()})
    assert torch.equal(load("mnist", tmp_path / "e").train.x[:, 0], torch.from_numpy(digits(30, 1)[0]))


def test_a_single_image_is_enough_and_none_is_not(tmp_path):
    one = {MNIST[0]: np.ones((1, 28, 28)), MNIST[1]: np.full(1, 7)}
    write(tmp_path / "one", contents(MNIST) | {name: idx_bytes(array) for name, array in one.items()})
    assert load("mnist", tmp_path / "one").train.y.tolist() == [7]
    write(tmp_path / "none", contents(MNIST) | {name: idx_bytes(array[:0]) for name, array in one.items()})
    with pytest.raises(DataError, match=r"holds 0 images but .* 0 labels"):
        load("mnist", tmp_path / "none")


def test_search_order_is_argument_environment_cache(tmp_path, monkeypatch):
    places = [tmp_path / "given", tmp_path / "env", tmp_path / "cache" / "accord"]
    for marker, place in enumerate(places):
        files = contents(MNIST)
        images = np.full((30, 28, 28), marker, np.uint8)
        write(place / "mnist", files | {MNIST[0]: idx_bytes(images)})
    monkeypatch.setenv("ACCORD_DATA", str(places[1]))
    for marker, place in enumerate(places):
        assert int(load("mnist", places[0]).train.x[0, 0, 0, 0]) == marker
        shutil.rmtree(place)
    with pytest.raises(DataError):
        load("mnist", places[0])


def test_a_folder_with_some_of_the_files_is_passed_over(tmp_path, monkeypatch):
    write(tmp_path / "half" / "mnist", {name: contents(MNIST)[name] for name in MNIST[:2]})
    write(tmp_path / "whole" / "mnist", contents(MNIST))
    monkeypatch.setenv("ACCORD_DATA", str(tmp_path / "whole"))
    assert len(load("mnist", tmp_path / "half").train) == 30
    monkeypatch.delenv("ACCORD_DATA")
    with pytest.raises(DataError, match=r"has train-images.*but lacks t10k-images") as error:
        load("mnist", tmp_path / "half")
    # only what is missing has to be put there, and it is said from where
    after = str(error.value).split("Put into ")[1]
    assert str(tmp_path / "half" / "mnist") in after
    assert "t10k-images-idx3-ubyte.gz  from https://" in after
    assert "train-images" not in after


def test_missing_files_are_named_with_place_and_address(tmp_path):
    with pytest.raises(DataError) as error:
        load("cifar10", tmp_path / "nowhere")
    text = str(error.value)
    assert f"Put into {tmp_path / 'nowhere' / 'cifar10'}:" in text
    assert "cifar-10-binary.tar.gz  from https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz" in text
    assert "never unpickles" in text
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="not a folder"):
        load("mnist", tmp_path / "file")


# How the published train labels begin.
BEGINS = {
    "mnist": [5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3, 5, 3, 6, 1, 7, 2, 8, 6, 9],
    "fashion_mnist": [9, 0, 0, 3, 0, 2, 7, 2, 5, 5, 0, 9, 5, 5, 7, 9, 1, 0, 6, 4],
}


@pytest.mark.parametrize(("name", "other"), [("mnist", "fashion_mnist"), ("fashion_mnist", "mnist")])
def test_mnist_and_fashion_are_told_apart_by_their_labels(tmp_path, name, other):
    begin = BEGINS[name]
    write(tmp_path, contents(MNIST) | {MNIST[1]: idx_bytes(np.array(begin + [0] * 10, np.uint8))})
    assert load(name, tmp_path).train.y[:3].tolist() == begin[:3]
    with pytest.raises(DataError, match=f"belongs to {name}, not to {other}"):
        load(other, tmp_path)
    begin = [*begin[:-1], (begin[-1] + 1) % 10]  # nobody's
    write(tmp_path, {MNIST[1]: idx_bytes(np.array(begin + [0] * 10, np.uint8))})
    assert len(load(other, tmp_path).train) == 30


def test_fashion_has_its_own_names_and_moments(tmp_path):
    write(tmp_path / "fashion_mnist", contents(MNIST), ".gz")
    data = load("fashion_mnist", tmp_path)
    assert (data.train.mean, data.train.std) == ((0.2860,), (0.3530,))
    assert data.classes[0] == "T-shirt/top"
    assert len(data.classes) == 10


@pytest.mark.parametrize("packed", [False, True])
def test_emnist_letters_are_turned_upright_and_count_from_zero(tmp_path, packed):
    files = contents(EMNIST, 1, 27)
    if packed:
        tmp_path.joinpath("emnist_letters").mkdir()
        with zipfile.ZipFile(tmp_path / "emnist_letters" / "gzip.zip", "w") as archive:
            archive.writestr("../escape", b"odd")
            archive.writestr("gzip/emnist-byclass-train-images-idx3-ubyte.gz", b"not read")
            for name, data in files.items():
                archive.writestr(f"gzip/{name}.gz", gzip.compress(data))
    else:
        write(tmp_path / "emnist_letters", files, ".gz")
    data = load("emnist_letters", tmp_path)
    stored = torch.from_numpy(digits(30, 1, 1, 27)[0])
    assert torch.equal(data.train.x[:, 0], stored.transpose(1, 2))
    assert data.train.x.is_contiguous()
    assert data.train.y.tolist() == [*range(26), 0, 1, 2, 3]
    assert data.classes[0] + data.classes[25] == "AZ"
    assert not (tmp_path.parent / "escape").exists()


def damage(name: str, data: bytes, kind: str) -> bytes:
    if kind == "cut":
        return data[:-5]
    if kind == "long":
        return data + b"\0"
    if kind == "header":
        return data[:6]
    if kind == "magic":
        return b"\0\0\x0d" + data[3:]
    if kind == "empty":
        return b""
    raise AssertionError(kind)


@pytest.mark.parametrize("name", MNIST)
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("cut", "is cut short"),
        ("long", "is too long"),
        ("header", "header alone"),
        ("magic", "starts with 00000d0"),
        ("empty", "is cut short: 0 bytes"),
    ],
)
def test_damaged_idx_files_are_named(tmp_path, name, kind, message):
    files = contents(MNIST)
    write(tmp_path, files | {name: damage(name, files[name], kind)})
    with pytest.raises(DataError, match=message) as error:
        load("mnist", tmp_path)
    assert str(tmp_path / name) in str(error.value)


def test_a_header_that_promises_the_world_costs_nothing(tmp_path):
    header = struct.pack(">BBBBIII", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    write(tmp_path, contents(MNIST) | {MNIST[0]: header})
    with pytest.raises(DataError, match="cut short"):
        load("mnist", tmp_path)


def test_swapped_images_and_labels(tmp_path):
    files = contents(MNIST)
    files[MNIST[0]], files[MNIST[1]] = files[MNIST[1]], files[MNIST[0]]
    write(tmp_path, files)
    with pytest.raises(DataError, match=r"not an IDX file of images.*swapped"):
        load("mnist", tmp_path)


@pytest.mark.parametrize(
    ("position", "array", "message"),
    [
        (1, np.zeros(29), "30 images but .* 29 labels"),
        (1, np.r_[np.zeros(7), 10, 11, np.zeros(21)], r"2 labels outside 0\.\.9, first 10 at position 7"),
        (0, np.zeros((30, 28, 27)), "28 x 27; they must be 28 x 28"),
        (0, np.zeros((0, 28, 28)), "0 images"),
    ],
)
def test_idx_files_that_disagree(tmp_path, position, array, message):
    write(tmp_path, contents(MNIST) | {MNIST[position]: idx_bytes(array)})
    with pytest.raises(DataError, match=message) as error:
        load("mnist", tmp_path)
    assert MNIST[position] in str(error.value)


def test_letters_out_of_range(tmp_path):
    write(tmp_path, contents(EMNIST, 0, 10))
    with pytest.raises(DataError, match=r"outside 1\.\.26, first 0 at position 0"):
        load("emnist_letters", tmp_path)


@pytest.mark.parametrize("kind", ["cut", "noise", "checksum", "plain"])
def test_damaged_gzip(tmp_path, kind):
    write(tmp_path, contents(MNIST), ".gz")
    path = tmp_path / f"{MNIST[0]}.gz"
    data = bytearray(path.read_bytes())
    if kind == "cut":
        data = data[: len(data) // 2]
    elif kind == "noise":
        data[100:200] = bytes(range(100))
    elif kind == "checksum":
        data[-6] ^= 1
    else:
        data = bytearray(contents(MNIST)[MNIST[0]])
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match="damaged or cut short") as error:
        load("mnist", tmp_path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("end", ["", ".gz"])
def test_a_compressed_bomb_is_refused(tmp_path, monkeypatch, end):
    size = 16 + 30 * 28 * 28  # the largest of the files: the head, and the training images
    monkeypatch.setattr("accord.data.files.contents.MAX_BYTES", size)
    write(tmp_path, contents(MNIST), end)
    assert len(load("mnist", tmp_path).train) == 30
    monkeypatch.setattr("accord.data.files.contents.MAX_BYTES", size - 1)
    with pytest.raises(DataError, match=f"{MNIST[0]}{end} is larger than"):
        load("mnist", tmp_path)


def test_bombs_in_archives_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("accord.data.files.contents.MAX_BYTES", 100_000)
    members = [(f"cifar-10-batches-bin/{name}", data) for name, data in cifar10_files().items()]
    path = tmp_path / "cifar-10-binary.tar.gz"
    tar(path, [*members[:-1], (members[-1][0], bytes(100_001))])
    with pytest.raises(DataError, match=r"test_batch\.bin\) is larger than"):
        load("cifar10", tmp_path)
    tar(path, [*members, ("behind it", bytes(50_000))])
    assert len(load("cifar10", tmp_path).test) == 3
    tar(path, [*members, ("behind it", bytes(200_000))])
    with pytest.raises(DataError, match=r"tar\.gz is larger than"):
        load("cifar10", tmp_path)
    path = tmp_path / "gzip.zip"
    files = contents(EMNIST, 1, 27)
    for last, fits in ((files[EMNIST[-1]], True), (bytes(100_001), False)):
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in (files | {EMNIST[-1]: last}).items():
                archive.writestr(f"gzip/{name}.gz", gzip.compress(data))
        if fits:
            assert len(load("emnist_letters", tmp_path).test) == 12
        else:
            with pytest.raises(DataError, match=r"gzip\.zip is larger than"):
                load("emnist_letters", tmp_path)


def cifar(count: int, seed: int, label_bytes: int, classes: int) -> tuple[bytes, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (count, 3072)).astype(np.uint8)
    labels = rng.integers(0, classes, count).astype(np.uint8)
    coarse = np.full((count, label_bytes - 1), 19, np.uint8)
    return np.concatenate([coarse, labels[:, None], pixels], 1).tobytes(), pixels, labels


def cifar10_files() -> dict[str, bytes]:
    files = {f"data_batch_{i}.bin": cifar(4, i, 1, 10)[0] for i in range(1, 6)}
    return files | {"test_batch.bin": cifar(3, 9, 1, 10)[0]}


def tar(path: Path, members: list[tuple[str, bytes]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize("layout", ["cifar10/cifar-10-batches-bin", "cifar-10-batches-bin", "cifar10", ""])
def test_cifar10_in_all_places(tmp_path, layout):
    write(tmp_path / layout, cifar10_files())
    data = load("cifar10", tmp_path)
    parts = [cifar(4, i, 1, 10) for i in range(1, 6)]
    assert data.train.x.shape == (20, 3, 32, 32)
    expected = np.concatenate([pixels for _, pixels, _ in parts])
    # red plane first, rows in order: byte 1024 * channel + 32 * row + column
    assert int(data.train.x[7, 2, 5, 6]) == expected[7, 2 * 1024 + 5 * 32 + 6]
    assert torch.equal(data.train.x.flatten(1), torch.from_numpy(expected))
    assert data.train.y.tolist() == np.concatenate([labels for _, _, labels in parts]).tolist()
    assert data.test.y.tolist() == cifar(3, 9, 1, 10)[2].tolist()
    assert data.classes[:2] == ("airplane", "automobile")
    assert (data.train.mean, data.train.std) == ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))


def test_cifar10_from_the_archive_reads_only_what_it_expects(tmp_path):
    members = [(f"cifar-10-batches-bin/{name}", data) for name, data in reversed(cifar10_files().items())]
    odd = [("../../evil.bin", b"x"), ("/etc/evil", b"x"), ("cifar-10-batches-bin/../data_batch_1.bin", b"x")]
    tar(tmp_path / "cifar-10-binary.tar.gz", [*odd, *members])
    data = load("cifar10", tmp_path)
    assert data.train.y.tolist() == np.concatenate([cifar(4, i, 1, 10)[2] for i in range(1, 6)]).tolist()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cifar-10-binary.tar.gz"]


def test_cifar100_takes_the_fine_label(tmp_path):
    train, pixels, labels = cifar(5, 1, 2, 100)
    tar(
        tmp_path / "cifar100" / "cifar-100-binary.tar.gz",
        [("./cifar-100-binary/train.bin", train), ("./cifar-100-binary/test.bin", cifar(2, 2, 2, 100)[0])],
    )
    data = load("cifar100", tmp_path, normalise=False)
    assert torch.equal(data.train.x.flatten(1), torch.from_numpy(pixels))
    assert data.train.y.tolist() == labels.tolist()
    assert (len(data.classes), data.classes[0], data.classes[99]) == (100, "apple", "worm")
    assert list(data.classes) == sorted(set(data.classes))
    assert data.train.mean == ()


def test_cifar100_checks_the_fine_label(tmp_path):
    bad = bytes([19, 100]) + bytes(3072)
    write(tmp_path / "cifar-100-binary", {"train.bin": cifar(2, 1, 2, 100)[0], "test.bin": bad})
    with pytest.raises(DataError, match=r"test\.bin holds 1 labels outside 0\.\.99, first 100 in record 0"):
        load("cifar100", tmp_path)


def test_archives_that_lack_a_member_or_hold_a_link(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    members = [(f"cifar-10-batches-bin/{name}", data) for name, data in cifar10_files().items()]
    tar(path, members[:-1])
    with pytest.raises(DataError, match=r"holds no cifar-10-batches-bin/test_batch\.bin"):
        load("cifar10", tmp_path)
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members[:-1]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo(members[-1][0])
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(DataError, match=r"holds no cifar-10-batches-bin/test_batch\.bin"):
        load("cifar10", tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.98])
def test_archives_cut_short(tmp_path, share):
    path = tmp_path / "cifar-10-binary.tar.gz"
    tar(path, [(f"cifar-10-batches-bin/{name}", data) for name, data in cifar10_files().items()])
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(DataError, match="damaged or cut short") as error:
        load("cifar10", tmp_path)
    assert str(path) in str(error.value)


def test_damaged_zip(tmp_path):
    path = tmp_path / "gzip.zip"
    path.write_bytes(b"PK\x03\x04 this is no archive")
    with pytest.raises(DataError, match=r"gzip\.zip is damaged"):
        load("emnist_letters", tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes are no whole"),
        (bytes(3072), "3072 bytes are no whole"),
        (bytes([3]) + bytes(3072) + bytes([10]) + bytes(3072), r"outside 0\.\.9, first 10 in record 1"),
    ],
)
def test_damaged_cifar_files_are_named(tmp_path, data, message):
    write(tmp_path, cifar10_files() | {"data_batch_3.bin": data})
    with pytest.raises(DataError, match=message) as error:
        load("cifar10", tmp_path)
    assert str(tmp_path / "data_batch_3.bin") in str(error.value)


@pytest.mark.parametrize(
    ("name", "names", "low", "high"),
    [("mnist", MNIST, 0, 9), ("fashion_mnist", MNIST, 0, 9), ("emnist_letters", EMNIST, 1, 26)],
)
@pytest.mark.parametrize("part", [1, 3])
def test_labels_one_beyond_the_classes_are_refused_in_both_parts(tmp_path, name, names, low, high, part):
    files = contents(names, low, high + 1)
    assert len(load(name, write(tmp_path / "good", files)).train) == 30
    count = 30 if part == 1 else 12
    files[names[part]] = idx_bytes(np.full(count, high + 1, np.uint8))
    with pytest.raises(DataError, match=rf"{count} labels outside {low}\.\.{high}, first {high + 1} at position 0"):
        load(name, write(tmp_path / "bad", files))


@pytest.mark.parametrize(("name", "label_bytes", "classes"), [("cifar10", 1, 10), ("cifar100", 2, 100)])
def test_classes_one_beyond_the_last_are_refused_in_both_parts(tmp_path, name, label_bytes, classes):
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if name == "cifar10" else ["train.bin"]
    last = "test_batch.bin" if name == "cifar10" else "test.bin"
    good = {file: cifar(2, 0, label_bytes, classes)[0] for file in (*names, last)}
    assert len(load(name, write(tmp_path / "good", good)).train) == 2 * len(names)
    for file in (names[-1], last):
        record = bytes(label_bytes - 1) + bytes([classes]) + bytes(3 * 32 * 32)
        with pytest.raises(DataError, match=file):
            load(name, write(tmp_path / f"bad {file}", good | {file: record}))
