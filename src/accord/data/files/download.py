"""Download one file: several addresses, resumed after an interruption, checked, and put in place in one step.

While it arrives the file is called `<name>.part`. A part left by an earlier run is continued with an HTTP
range request; only a file whose MD5 is right gets its final name, so a file of that name is always whole.
"""

from __future__ import annotations

import hashlib
import http.client
import itertools
import os
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from accord.errors import DataError

# file name, bytes so far, bytes in all (0 when the server does not say)
Progress = Callable[[str, int, int], None]

CHUNK = 1 << 16
MAX_BYTES = 2 << 30


@dataclass(frozen=True)
class Remote:
    """A file on the web: the name it is stored under, its addresses in order of preference, its MD5."""

    name: str
    urls: tuple[str, ...]
    md5: str


class _InterruptedError(Exception):
    """The transfer broke off and is worth another try at the same address."""


class _RefusedError(Exception):
    """This address will not give us the file."""


def fetch(
    remote: Remote,
    folder: Path,
    progress: Progress | None = None,
    *,
    timeout: float = 30.0,
    attempts: int = 5,
    pause: float = 1.0,
) -> Path:
    """Download `remote` into `folder` unless it is there; up to `attempts` transfers from each address."""
    target = folder / remote.name
    part = folder / f"{remote.name}.part"
    failures = []
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / f"{remote.name}.lock"):
        if target.is_file():  # another process may have finished while we waited
            return target
        for url in remote.urls:
            try:
                resumed = part.is_file() and part.stat().st_size > 0
                _receive(url, part, remote.name, progress, timeout, attempts, pause)
                problem = _mismatch(part, remote.md5)
                if problem and resumed:  # the old part may be of another version: again from the start
                    part.unlink()
                    _receive(url, part, remote.name, progress, timeout, attempts, pause)
                    problem = _mismatch(part, remote.md5)
                if problem:
                    part.unlink()
                    raise _RefusedError(problem)
            except (_RefusedError, _InterruptedError) as error:
                failures.append(f"  {url}: {error}")
                continue
            with _writing(folder):
                os.replace(part, target)
            return target
    raise DataError(f"{remote.name} could not be downloaded:\n" + "\n".join(failures))


def _receive(
    url: str, part: Path, name: str, progress: Progress | None, timeout: float, attempts: int, pause: float
) -> None:
    """Fill `part` from `url`, going on where a broken transfer stopped."""
    for attempt in itertools.count(1):
        try:
            _transfer(url, part, name, progress, timeout)
            return
        except _InterruptedError:
            if attempt == attempts:
                raise
            time.sleep(pause * attempt)


def _transfer(url: str, part: Path, name: str, progress: Progress | None, timeout: float) -> None:
    if not url.startswith(("http://", "https://")):
        raise _RefusedError("only http and https addresses are allowed")
    have = part.stat().st_size if part.is_file() else 0
    headers = {"User-Agent": "accord-fl", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the scheme was checked above
    try:
        response = urllib.request.urlopen(request, timeout=timeout)  # noqa: S310
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and have:
                if (error.headers.get("Content-Range") or "").endswith(f"/{have}"):
                    return  # the part is whole already
                part.unlink()
                raise _InterruptedError("the part of an earlier download did not fit and was deleted") from error
            kind = _InterruptedError if error.code in (408, 429) or error.code >= 500 else _RefusedError
            raise kind(f"the server answered {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _RefusedError(f"no connection ({getattr(error, 'reason', error)})") from error
    with response:
        _store(response, part, have, name, progress)


def _store(response: http.client.HTTPResponse, part: Path, have: int, name: str, progress: Progress | None) -> None:
    """Write the body of one response; a server that ignores the range request starts the file anew."""
    length = response.headers.get("Content-Length") or ""
    total = int(length) if length.isdecimal() else 0
    if response.status == 206:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range") or "")
        if match is None or int(match[1]) != have:
            part.unlink()
            raise _InterruptedError("the server sent another part of the file than asked for")
        total = total + have if total else int(match[2]) if match[2] != "*" else 0
    else:
        have = 0
    with _writing(part.parent):
        stream = open(part, "ab" if have else "wb")  # noqa: SIM115 - closed below
    with stream:
        while True:
            try:
                chunk = response.read(CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise _InterruptedError(f"the connection broke off after {have} bytes ({error})") from error
            if not chunk:
                break
            with _writing(part.parent):
                stream.write(chunk)
            have += len(chunk)
            if have > MAX_BYTES:
                raise _RefusedError(f"the file does not end after {MAX_BYTES >> 30} GiB")
            if progress is not None:
                progress(name, have, total)
        with _writing(part.parent):
            stream.flush()
            os.fsync(stream.fileno())  # or a power cut could leave a renamed but hollow file
    if have < total:
        raise _InterruptedError(f"the connection broke off after {have} of {total} bytes")


def _mismatch(path: Path, md5: str) -> str:
    """What is wrong with a finished download; nothing when its checksum is right."""
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() == md5:
        return ""
    return (
        f"wrong contents, deleted: {path.stat().st_size} bytes with MD5 {digest.hexdigest()} for {md5}. "
        "A proxy or a login page may have answered instead of the server"
    )


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write into {folder}: {error.strerror or error}. Make room or choose another folder with "
            "data_dir or the environment variable ACCORD_DATA"
        ) from error


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let one process at a time download a file; without locks the checksum still guards it."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with _writing(path.parent):
        stream = open(path, "wb")  # noqa: SIM115 - held open for the length of the lock
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX)
        except OSError:  # some network file systems have no locks
            yield
            return
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
