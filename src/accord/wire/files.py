"""Files of a folder that may be somebody else's: plain ones only, no larger than allowed, and no links."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from accord.errors import RunError

# O_NONBLOCK: a pipe that waits for its other end would wait for ever.
SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def no_links(path: str, flags: int) -> int:
    """An opener for `open`: plain files only, and RunError for a link."""
    refuse_links(Path(path))
    handle = os.open(path, flags | SAFELY, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise RunError(f"{path} is no plain file: remove it, or work in a folder of your own")
    return handle


def refuse_links(*paths: Path) -> None:
    """RunError if one of them is a symbolic link."""
    for path in paths:
        if path.is_symlink():
            raise RunError(
                f"{path} is a symbolic link, and a run's folder is written without following links: "
                "put what it points to in its place, or remove it"
            )


def read_here(path: Path, limit: int) -> bytes:
    """A plain file of at most `limit` bytes; RunError for a link, a pipe or more, OSError as `open` has them."""
    with open(path, "rb", opener=no_links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise RunError(f"{path} has {size} bytes, more than the {limit} allowed")
        return file.read()


def sha256_here(path: Path) -> str:
    """The checksum of a plain file, which need not fit into memory."""
    digest = hashlib.sha256()
    with open(path, "rb", opener=no_links) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
