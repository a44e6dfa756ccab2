"""Where the files of a public data set lie, and their bytes: plain, gzipped, or inside the published archive.

Nothing is ever unpacked to disk: from an archive only the expected members are read, by exact name, into
memory.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from accord.data.download import Progress, Remote, fetch
from accord.errors import DataError

DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile, RuntimeError)
MAX_BYTES = 1 << 30  # no file of any data set here is near this; a compressed bomb is


@dataclass(frozen=True)
class Collection:
    """The files of one data set, the places they usually lie in, and where they can be fetched."""

    name: str
    files: tuple[str, ...]  # names as published, without .gz
    remotes: tuple[Remote, ...]  # one per file in the same order, or the one archive
    archive: str = ""  # name of the archive that holds all files, if there is one
    inside: str = ""  # the folder of the files inside the archive
    folders: tuple[str, ...] = ()  # other sub-folders worth a look, such as torchvision's
    hint: str = ""  # said when the files are not found


@dataclass(frozen=True)
class Places:
    """Folders to search, the first of which also receives downloads."""

    roots: tuple[Path, ...]
    download: bool = True
    progress: Progress | None = None

    @classmethod
    def usual(cls, data_dir: str | os.PathLike[str] | None, download: bool, progress: Progress | None) -> Places:
        """`data_dir`, then $ACCORD_DATA, then the user's cache folder."""
        given = [os.fspath(data_dir)] if data_dir is not None else []
        given += [os.environ["ACCORD_DATA"]] if os.environ.get("ACCORD_DATA") else []
        cache = os.environ.get("XDG_CACHE_HOME", "")
        given.append(os.path.join(cache if os.path.isabs(cache) else os.path.join("~", ".cache"), "accord"))
        return cls(tuple(Path(os.path.expanduser(folder)) for folder in given), download, progress)

    def candidates(self, *names: str) -> list[Path]:
        """The sub-folders `names` of each root, then the root itself, in the order of the search."""
        return [folder for root in self.roots for folder in (*(root / name for name in names), root)]


@dataclass(frozen=True)
class Location:
    """All files of a collection: either one path each, or one archive."""

    collection: Collection
    paths: dict[str, Path] = field(default_factory=dict)
    archive: Path | None = None


@dataclass(frozen=True)
class Blob:
    """The unpacked bytes of one file, and its name for messages."""

    where: str
    data: npt.NDArray[np.uint8]


def find(collection: Collection, places: Places) -> Location:
    """The first folder that holds all files or the archive; else download; else say what is missing."""
    folders = places.candidates(collection.name, *collection.folders)
    for folder in folders:
        location = _in_folder(collection, folder)
        if location is not None:
            return location
    target = places.roots[0] / collection.name
    reason = "and downloading is switched off"
    if places.download:
        try:
            for remote in _missing(collection, target):
                fetch(remote, target, places.progress)
        except DataError as problem:
            reason = f"and the download failed.\n{problem}"
        else:
            location = _in_folder(collection, target)
            assert location is not None  # everything that was missing has just been written
            return location
    raise DataError(_explain(collection, folders, target, reason))


def read(location: Location) -> dict[str, Blob]:
    """Contents of all files of a collection by their published names."""
    if location.archive is None:
        return {name: _read_path(path) for name, path in location.paths.items()}
    with explained(location.archive):
        members = _zip_members if location.archive.suffix == ".zip" else _tar_members
        found = members(location.archive, location.collection)
    for name in location.collection.files:
        if name not in found:
            raise DataError(
                f"{location.archive} holds no {location.collection.inside}/{name}; replace it by the "
                f"published archive, {location.collection.remotes[0].urls[0]}"
            )
    return found


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


def _in_folder(collection: Collection, folder: Path) -> Location | None:
    for place in (folder / collection.inside, folder) if collection.inside else (folder,):
        paths = {name: path for name in collection.files for path in _variants(place, name)[:1]}
        if len(paths) == len(collection.files):
            return Location(collection, paths)
    archive = folder / collection.archive
    return Location(collection, archive=archive) if collection.archive and os.path.isfile(archive) else None


def _variants(folder: Path, name: str) -> list[Path]:
    """Existing files of that name; some tools write `train-images.idx3-ubyte`, many keep the `.gz`."""
    spellings = (name, name.replace("-idx", ".idx"))
    return [
        folder / f"{spelling}{end}"
        for spelling in spellings
        for end in ("", ".gz")
        if os.path.isfile(folder / f"{spelling}{end}")
    ]


def _missing(collection: Collection, folder: Path) -> tuple[Remote, ...]:
    if collection.archive:
        return collection.remotes
    pairs = zip(collection.files, collection.remotes, strict=True)
    return tuple(remote for name, remote in pairs if not _variants(folder, name))


def _explain(collection: Collection, folders: list[Path], target: Path, reason: str) -> str:
    lines = [f"{collection.name}: its files are not on this machine {reason}", "Looked in:"]
    for folder in folders:
        held = [name for name in collection.files if _variants(folder, name)]
        exists, opens = os.path.exists(folder), os.path.isdir(folder)
        remark = "" if opens else " (not a folder)" if exists else " (not found, or not readable)"
        if held:
            absent = [name for name in collection.files if name not in held]
            remark = f" (has {', '.join(held)}, but lacks {', '.join(absent)})"
        lines.append(f"  {folder}{remark}")
    lines.append(f"Put into {target}:")
    lines += [f"  {remote.name}  from {remote.urls[0]}" for remote in _missing(collection, target)]
    return "\n".join([*lines, collection.hint] if collection.hint else lines)


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
    found: dict[str, Blob] = {}
    with tarfile.open(path, "r:*") as archive:
        for member in archive:
            name = wanted.get(member.name.removeprefix("./"))
            if name is None or not member.isreg():  # a link of the right name is not followed
                continue
            where = f"{path} ({member.name})"
            _limit(where, member.size)
            stream = archive.extractfile(member)
            assert stream is not None  # regular files always have contents
            found[name] = Blob(where, _bytes(where, stream))
            if len(found) == len(wanted):
                break
    return found


def _zip_members(path: Path, collection: Collection) -> dict[str, Blob]:
    found: dict[str, Blob] = {}
    with zipfile.ZipFile(path) as archive:
        present = set(archive.namelist())
        for name in collection.files:
            member = f"{collection.inside}/{name}.gz"
            if member in present:
                with archive.open(member) as packed, gzip.open(packed, "rb") as stream:
                    found[name] = Blob(f"{path} ({member})", _bytes(path, stream))
    return found
