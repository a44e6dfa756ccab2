"""Whether files are still those that were read: a process that stays must not go on with what has been replaced."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

Stamp = tuple[tuple[str, int, int, int], ...]


def stamp(paths: Iterable[Path]) -> Stamp:
    """Name, number, size and time of the last change of every file there, in folders too; what is not there has 0."""
    return tuple(_one(file) for path in paths for file in _files(path))


def _files(path: Path) -> Iterable[Path]:
    if not path.is_dir():
        return [path]
    return sorted(Path(folder, name) for folder, _, names in os.walk(path) for name in names)


def _one(file: Path) -> tuple[str, int, int, int]:
    try:
        found = file.stat()
    except OSError:
        return str(file), 0, 0, 0
    return str(file), found.st_ino, found.st_size, found.st_mtime_ns
