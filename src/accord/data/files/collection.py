"""Where the files of a published data set lie: on this machine, or at a public address."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from accord.data.files.download import Progress, Remote, fetch
from accord.errors import DataError


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

    def own(self, path: str) -> Path:
        """A user's own file or folder: as the path says, else below one of the roots; where it should be if nowhere."""
        given = Path(os.path.expanduser(path))
        return next((p for p in (given, *(root / given for root in self.roots)) if os.path.exists(p)), given)

    def candidates(self, *names: str) -> list[Path]:
        """The sub-folders `names` of each root, then the root itself, in the order of the search."""
        return [folder for root in self.roots for folder in (*(root / name for name in names), root)]


@dataclass(frozen=True)
class Location:
    """All files of a collection: either one path each, or one archive."""

    collection: Collection
    paths: dict[str, Path] = field(default_factory=dict)
    archive: Path | None = None


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
