"""Every byte of a compressed file counts: what is damaged is refused by name, wherever the damage lies."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import accord
from accord.data.division import federate
from accord.data.files import contents
from accord.errors import ConfigError, DataError
from support import published


def written(kind: str, folder: Path) -> tuple[str, Path, bytes]:
    name, files, _ = published.KINDS[kind]
    (file,) = files
    path = folder / file
    path.parent.mkdir(parents=True)
    path.write_bytes(files[file])
    return name, path, files[file]


@pytest.mark.parametrize("kind", ["cifar.tar.gz", "cifar.tar.bz2", "cifar.tar.xz", "letters.zip", "npz"])
def test_a_flipped_byte_is_found_at_the_end_too(tmp_path: Path, kind: str) -> None:
    name, path, data = written(kind, tmp_path)
    sound = published.load(name, tmp_path)
    for place in (len(data) // 3, len(data) // 2, 2 * len(data) // 3):
        path.write_bytes(data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
        with pytest.raises(DataError, match=path.name):
            published.load(name, tmp_path)
    path.write_bytes(data)
    assert published.load(name, tmp_path).train.x.equal(sound.train.x)


def test_the_checksum_behind_the_last_member_of_an_archive_is_read(tmp_path: Path) -> None:
    """A gzip stream keeps it in its last eight bytes, after everything that is wanted."""
    name, path, data = written("cifar.tar.gz", tmp_path)
    path.write_bytes(data[:-8] + bytes([data[-8] ^ 1]) + data[-7:])
    with pytest.raises(DataError, match=r"damaged or cut short \(CRC check failed"):
        published.load(name, tmp_path)


def test_what_lies_behind_the_last_member_is_held_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces of a mebibyte, all of which count."""
    monkeypatch.setattr(contents, "MAX_BYTES", 5 << 19)
    contents._drain("it", None)
    contents._drain("it", io.BytesIO(bytes(5 << 19)))
    with pytest.raises(DataError, match="it is larger than 2 MiB unpacked"):
        contents._drain("it", io.BytesIO(bytes((5 << 19) + 1)))


def test_an_xz_stream_that_is_none(tmp_path: Path) -> None:
    """LZMAError is of no kind the others are of."""
    name, path, data = written("cifar.tar.xz", tmp_path)
    path.write_bytes(data[:100] + b"\x00" * 200 + data[300:])
    with pytest.raises(DataError, match=r"is damaged or cut short"):
        published.load(name, tmp_path)


def test_a_picture_whose_checksum_differs(tmp_path: Path) -> None:
    """Pillow decodes it all the same."""
    name, files, _ = published.KINDS["png"]
    for file, data in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(data)
    published.load(name, tmp_path, path="mine")
    path = tmp_path / "mine/1/3.png"
    data = path.read_bytes()
    checksum = data.index(b"IEND") - 5  # the last byte of that of the pixels
    path.write_bytes(data[:checksum] + bytes([data[checksum] ^ 1]) + data[checksum + 1 :])
    with pytest.raises(DataError, match=r"3\.png cannot be read as an image"):
        published.load(name, tmp_path, path="mine")


def test_a_billion_clients_cost_nothing() -> None:
    data = accord.load_dataset("mnist5k")
    for partition in ("dirichlet", "iid"):
        with pytest.raises(ConfigError, match="1,000,000,000 clients cannot share 4,000 training samples"):
            federate(data, clients=1_000_000_000, partition=partition)
