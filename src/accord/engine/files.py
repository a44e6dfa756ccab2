"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from accord.errors import RunError


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write beside the target, flush to disk, then rename over it."""
    raw = data.encode() if isinstance(data, str) else data
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RunError(
            f"cannot write {path}: {error.strerror or error}. Free space or choose another --out."
        ) from error


def sync_folder(path: Path) -> None:
    """Make renames inside `path` last through a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
