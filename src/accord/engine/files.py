"""Files that are there whole or not at all, in a run's folder that is written without following links.

A folder may come from somebody else: a link in it must not lead what is written, cut or deleted to other files.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from accord.errors import InUseError, RunError
from accord.wire.files import no_links, refuse_links

# What a run keeps in its folder, and in its `checkpoint`.
OWN = (
    *(
        ".lock",
        "config.toml",
        "identity.json",
        "federation.json",
        "metrics.jsonl",
        "timings.jsonl",
        "notes.txt",
        "summary.json",
        "sites.csv",
        "mlflow-run-id",
    ),
    *("tensorboard", "checkpoint", "model"),
)
TEMPORARY = re.compile(r"\..+\.[0-9]+\.tmp")  # of `write_atomic`
UNFINISHED = re.compile(r"\.round-[0-9]+\.tmp")  # a checkpoint before its rename
UNFINISHED_MODEL = re.compile(r"\.model\.tmp")
ROUND = re.compile(r"round-([0-9]+)")  # a checkpoint


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write beside the target, flush to disk, then rename over it."""
    raw = data.encode() if isinstance(data, str) else data
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)  # of a killed process that had the same number
        with open(temporary, "xb", opener=no_links) as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}. Free space or choose another --out."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Make renames inside `path` last through a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def rounds_in(folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints in `folder` by number; what is called otherwise is somebody else's."""
    if not folder.is_dir():
        return []
    named = ((ROUND.fullmatch(path.name), path) for path in folder.iterdir())
    folders = sorted((int(match[1]), path) for match, path in named if match is not None)
    refuse_links(*(path for _, path in folders))
    return [(number, path) for number, path in folders if path.is_dir()]


@contextmanager
def only_here(folder: Path) -> Iterator[None]:
    """Work in a run's folder alone: RunError while another process does, or where links lead out of it.

    The lock goes with the process, however it ends; what an earlier one left half written is removed.
    """
    checkpoint = folder / "checkpoint"
    refuse_links(*(folder / name for name in OWN), checkpoint / "clients")
    try:
        import fcntl
    except ImportError:  # a system without file locks
        yield
        return
    try:
        lock = open(folder / ".lock", "a", opener=no_links)  # noqa: SIM115  # "a": nothing in it is lost
    except OSError as error:
        raise RunError(f"cannot write into {folder}: {error.strerror or error}") from error
    with lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of this process alone: forked workers do not hold it
        except OSError as error:
            raise InUseError(f"another process works in {folder}: wait for it, or end it first") from error
        _clear_away(folder, checkpoint)
        yield


def _clear_away(folder: Path, checkpoint: Path) -> None:
    """Remove what a killed write left; only names this module gives, and only under the lock."""
    unfinished = {folder: UNFINISHED_MODEL, checkpoint: UNFINISHED}
    try:
        for place in (folder, checkpoint, checkpoint / "clients", *(path for _, path in rounds_in(checkpoint))):
            for path in list(place.iterdir()) if place.is_dir() else []:
                kind = path.lstat().st_mode
                if stat.S_ISREG(kind) and TEMPORARY.fullmatch(path.name):
                    path.unlink()
                elif stat.S_ISDIR(kind) and place in unfinished and unfinished[place].fullmatch(path.name):
                    shutil.rmtree(path)
    except OSError as error:
        raise RunError(f"cannot write into {folder}: {error.strerror or error}") from error
