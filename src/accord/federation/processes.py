"""Processes that outlive the command that started them, and end for sure.

Whom we started is known by two things. A process and all it starts carry a mark in their environment, a long random
word: on Linux everything with it is found, also what has left its parent and its group (but Flower's SuperExec, which
lets only root look, and ends by itself with its parent). And a process is recorded by its number together with the
moment it began, as numbers are used again: nobody else is ever signalled.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accord.errors import RunError

MARK = "ACCORD_FEDERATION_MARK"
PROC = Path("/proc")
GRACE = 10.0  # seconds between asking a process to end and ending it
LOOK = 0.05  # seconds between two looks


@dataclass(frozen=True)
class Process:
    """One that was started, as it is kept in a file."""

    name: str
    mark: str
    pid: int = 0  # 0: about to be started, which is written down first
    began: str = ""

    @property
    def alive(self) -> bool:
        """Whether it runs, and is not a later one with the same number."""
        return self.pid > 0 and began(self.pid) == self.began

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)


def planned(name: str) -> Process:
    """One that will be started; it can be found by its mark from its first moment."""
    return Process(name, secrets.token_hex(16))


def start(plan: Process, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
    """Start a command in a session of its own; what it says goes to the end of `log`, which only its owner can read."""
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise RunError(f"cannot write {log}: {error.strerror or error}") from error
    try:
        child = _Child(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=subprocess.STDOUT,
            env={**environment, MARK: plan.mark},
            start_new_session=True,
        )
    except OSError as error:
        raise RunError(f"cannot start {command[0]}: {error.strerror or error}") from error
    finally:
        os.close(handle)
    _CHILDREN[child.pid] = child
    # A process that ended at once has no beginning any more; it is noticed where somebody waits for it.
    return dataclasses.replace(plan, pid=child.pid, began=began(child.pid) or "over")


class _Child(subprocess.Popen[bytes]):
    """One that may outlive this process."""

    def __del__(self, *given: object) -> None:
        """Without Python's warning that it does."""


_CHILDREN: dict[int, _Child] = {}  # whom this process started: it must take their exit codes


def exit_code(process: Process) -> int | None:
    """How a child of this very process ended; None while it runs, or where it is not ours."""
    child = _CHILDREN.get(process.pid)
    return None if child is None else child.poll()


def began(pid: int) -> str | None:
    """When the process with this number began, in words no other has; None if there is none, or only its remains."""
    if child := _CHILDREN.get(pid):
        child.poll()  # or an ended child would stay as remains
    if PROC.joinpath("self", "stat").exists():
        try:
            # The name in parentheses may hold anything; behind it: state, ..., and the 20th is the moment of its start.
            fields = PROC.joinpath(str(pid), "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else f"{_boot()}:{fields[19]}"
    asked = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603, S607
    state, _, moment = asked.stdout.strip().partition(" ")
    return moment.strip() if moment and not state.startswith("Z") else None


def _boot() -> str:
    try:
        return PROC.joinpath("sys", "kernel", "random", "boot_id").read_text().strip()[:8]
    except OSError:
        return ""


def marked(marks: Iterable[str]) -> list[int]:
    """The processes that carry one of the marks, this one left out; on systems without /proc none are found."""
    wanted = {f"{MARK}={mark}".encode() for mark in marks}
    found = []
    for folder in PROC.iterdir() if PROC.is_dir() else ():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with suppress(OSError):  # ended meanwhile, or another user's
                if wanted & set(folder.joinpath("environ").read_bytes().split(b"\0")) and began(int(folder.name)):
                    found.append(int(folder.name))
    return sorted(found)


def end(processes: Iterable[Process], grace: float = GRACE) -> None:
    """End these and whatever they started: asked first, then without asking."""
    known = list(processes)
    marks = {process.mark for process in known}
    seen: dict[int, str | None] = {}  # a process that is dying has no mark any more, and still its files and ports

    def left_over() -> list[int]:
        seen.update((pid, began(pid)) for pid in marked(marks) if pid not in seen)
        return [pid for pid, moment in seen.items() if moment is not None and began(pid) == moment]

    def over() -> bool:
        return not any(process.alive for process in known) and not left_over()

    for kind, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, GRACE)):
        for process in known:
            if process.alive:
                _signal_group(process.pid, kind)
        for pid in left_over():
            _signal(pid, kind)
        if waited(over, seconds):
            return
    left = left_over() or [process.pid for process in known if process.alive]
    raise RunError(f"processes {', '.join(map(str, left))} do not end: end them by hand (kill -9)")


def _signal(pid: int, kind: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, kind)


def _signal_group(pid: int, kind: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, kind)


def waited(happened: Callable[[], bool], seconds: float) -> bool:
    """Whether it happened within so many seconds."""
    until = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > until:
            return False
        time.sleep(LOOK)
    return True


def last_lines(log: Path, count: int = 3) -> str:
    """What a process said last, for an error message."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return "nothing"
    said = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(said[-count:]) or "nothing"
