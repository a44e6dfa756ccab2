"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def only_here(folder: Path) -> Iterator[None]:
    """Refuse to work in a run's folder while another process does; the lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # a system without file locks
        yield
        return
    try:
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise RunError(f"cannot write into {folder}: {error.strerror or error}") from error
    with lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of this process alone: forked workers do not hold it
        except OSError as error:
            raise RunError(f"another process works in {folder}: wait for it, or end it first") from error
        yield
