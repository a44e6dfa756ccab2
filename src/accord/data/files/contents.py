"""The bytes of a data set's files: plain, gzipped, or inside the published archive.

Nothing is ever unpacked to disk: from an archive only the expected members are read, by exact name, into
memory.
"""

from __future__ import annotations

import gzip
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import numpy as np
import numpy.typing as npt

from accord.data.files.collection import Collection, Location, Places, find
from accord.errors import DataError

Arrays = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]  # images and labels

DAMAGED = (
    *(EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, RuntimeError),
    *(struct.error, ValueError, LookupError, OverflowError, MemoryError),  # of headers whose numbers are wrong
)
MAX_BYTES = 1 << 30  # no file of any data set here is near this; a compressed bomb is


class SupportsRead(Protocol):
    """An open file, as far as reading it goes."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at its end."""
        ...


@dataclass(frozen=True)
class Blob:
    """The unpacked bytes of one file, and its name for messages."""

    where: str
    data: npt.NDArray[np.uint8]


def read_collection(collection: Collection, places: Places) -> list[Blob]:
    """The files of a collection in its order, found or fetched, and unpacked."""
    blobs = read(find(collection, places))
    return [blobs[name] for name in collection.files]


def read(location: Location) -> dict[str, Blob]:
    """Contents of all files of a collection by their published names."""
    if location.archive is None:
        return {name: _read_path(path) for name, path in location.paths.items()}
    with explained(location.archive):
        members = _zip_members if location.archive.suffix == ".zip" else _tar_members
        blobs = members(location.archive, location.collection)
    for name in location.collection.files:
        if name not in blobs:
            raise DataError(
                f"{location.archive} holds no {location.collection.inside}/{name}; replace it by the "
                f"published archive, {location.collection.remotes[0].urls[0]}"
            )
    return blobs


@contextmanager
def explained(where: object) -> Iterator[None]:
    """Turn the many ways in which reading a compressed file fails into one clear error."""
    try:
        yield
    except DAMAGED as error:
        raise DataError(
            f"{where} is damaged or cut short ({error}); delete it, then download or copy it again"
        ) from error
    except OSError as error:
        raise DataError(f"{where} cannot be read: {error.strerror or error}") from error


def _read_path(path: Path) -> Blob:
    with explained(path):
        if path.suffix != ".gz":
            _limit(path, path.stat().st_size)
            return Blob(str(path), np.fromfile(path, dtype=np.uint8))
        with gzip.open(path, "rb") as stream:
            return Blob(str(path), _bytes(path, stream))


def _bytes(where: object, stream: IO[bytes] | gzip.GzipFile) -> npt.NDArray[np.uint8]:
    data = stream.read(MAX_BYTES + 1)
    _limit(where, len(data))
    return np.frombuffer(bytearray(data), dtype=np.uint8)  # torch wants writable memory


def _limit(where: object, size: int) -> None:
    if size > MAX_BYTES:
        raise DataError(f"{where} is larger than {MAX_BYTES >> 20} MiB unpacked; this is not the published file")


def _tar_members(path: Path, collection: Collection) -> dict[str, Blob]:
    wanted = {f"{collection.inside}/{name}": name for name in collection.files}
    blobs: dict[str, Blob] = {}
    with tarfile.open(path, "r:*") as archive:
        for member in archive:
            name = wanted.get(member.name.removeprefix("./"))
            if name is None or not member.isreg():  # a link of the right name is not followed
                continue
            where = f"{path} ({member.name})"
            _limit(where, member.size)
            stream = archive.extractfile(member)
            assert stream is not None  # regular files always have contents
            blobs[name] = Blob(where, _bytes(where, stream))
            if len(blobs) == len(wanted):
                break
        _drain(path, archive.fileobj)
    return blobs


def _drain(where: object, stream: SupportsRead | None) -> None:
    """Read what is left of a compressed stream: its checksum comes at its very end."""
    size = 0
    while stream is not None and (piece := stream.read(1 << 20)):
        size += len(piece)
        _limit(where, size)


def _zip_members(path: Path, collection: Collection) -> dict[str, Blob]:
    blobs: dict[str, Blob] = {}
    with zipfile.ZipFile(path) as archive:
        present = set(archive.namelist())
        for name in collection.files:
            member = f"{collection.inside}/{name}.gz"
            if member in present:
                with archive.open(member) as packed, gzip.open(packed, "rb") as stream:
                    blobs[name] = Blob(f"{path} ({member})", _bytes(path, stream))
    return blobs
