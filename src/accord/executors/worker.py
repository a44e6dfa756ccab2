"""A worker: a forked process that runs clients one after another, keeps nothing, and ends with its parent.

Its messages lie in arenas, anonymous shared mappings made before the fork: one the server writes for all workers and
three of its own: its input, and two for its output in turn, so that it trains its next client while the server copies
the last answer out. Only layouts (names, shapes, offsets) go through the pipe.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from threading import Lock
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from accord.client import Answer, Request, Site, Work
from accord.core.task import Task
from accord.core.tensors import clone
from accord.executors import bundle
from accord.executors.sequential import answer
from accord.wire.codec import Layout, place, room, views

SLACK = 1 << 20
PATIENCE = 1.0  # seconds an idle worker has to end by itself

PR_SET_PDEATHSIG = 1  # of Linux' prctl: the signal a process gets when its parent is gone
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None
# This process's ends of all pipes: a worker closes them, or no worker would ever find the other end of its own closed.
_OPEN: WeakSet[Connection] = WeakSet()
_ONE_AT_A_TIME = Lock()  # a worker forked meanwhile by another thread would inherit both ends


class Arena:
    """Memory that a process and its later forks all see."""

    def __init__(self, size: int) -> None:
        self.size = size + SLACK
        self.tensor: Tensor = torch.frombuffer(mmap.mmap(-1, self.size), dtype=torch.uint8)


class WorkerGone(Exception):  # noqa: N818 - the client is run again
    """A worker ended while it had a client; `code` as in `multiprocessing`: negative for a signal."""

    def __init__(self, code: int | None) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Room:
    """A worker's arenas, as both sides know them."""

    broadcast: Arena
    inbox: Arena
    outboxes: tuple[Arena, Arena]


@dataclass
class Worker:
    """The server's side of a worker."""

    process: BaseProcess
    pipe: Connection
    arenas: Room
    work: Work | None = None
    turn: int = 0  # which outbox its present client writes

    def hand(self, header: Request, shared: Layout, work: Work) -> None:
        """Give it a client."""
        layout = place(bundle.given(work), self.arenas.inbox.tensor)
        self.work, self.turn = work, 1 - self.turn
        with suppress(OSError):  # it died while idle: `receive` finds the pipe closed
            self.pipe.send((header, shared, bundle.header_of(work), layout, self.turn))

    def receive(self) -> tuple[Answer | int, Layout | None]:
        """The answer and where its tensors lie, or the size the outbox should have had. The worker is free again."""
        try:
            found, layout = self.pipe.recv()
        except (EOFError, OSError):
            self.process.kill()  # of no effect on one that is dead
            self.process.join()
            raise WorkerGone(self.process.exitcode) from None
        self.work = None
        return found, layout

    def outbox(self) -> Arena:
        """Where its present answer lies: overwritten by the next client but one."""
        return self.arenas.outboxes[self.turn]

    def stop(self) -> None:
        """End it: at once when it is busy, as it keeps nothing."""
        if self.work is not None:
            self.process.kill()
        _OPEN.discard(self.pipe)
        self.pipe.close()

    def wait(self) -> None:
        """Until it has ended."""
        self.process.join(timeout=PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def start_worker(site: Site, tasks: Mapping[str, Task], arenas: Room) -> Worker:
    """Fork one. OSError where the system has no descriptor, process or memory left."""
    with _ONE_AT_A_TIME:
        return _fork(site, tasks, arenas)


def _fork(site: Site, tasks: Mapping[str, Task], arenas: Room) -> Worker:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    _OPEN.add(ours)
    try:
        with _signals_later() as mask:
            arguments = (os.getpid(), mask, tuple(_OPEN), site, tasks, theirs, arenas)
            process = context.Process(target=_live, args=arguments, daemon=True)
            with warnings.catch_warnings():
                # Newer Pythons warn that a forked child may inherit a held lock. The child runs torch on one thread
                # and touches no lock of ours, which is how torch's own data loaders fork.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
    except BaseException:
        _OPEN.discard(ours)
        ours.close()
        raise
    finally:
        theirs.close()
    return Worker(process, ours, arenas)


@contextmanager
def _signals_later() -> Iterator[set[signal.Signals]]:
    """Signals to end wait meanwhile, so that none meets a child that still has its parent's handlers."""
    before: Any = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _live(
    parent: int,
    mask: set[signal.Signals],
    strangers: Sequence[Connection],
    site: Site,
    tasks: Mapping[str, Task],
    pipe: Connection,
    arenas: Room,
) -> None:
    """A worker's life, in the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group and is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not the parent's handler: a worker that is asked to end, ends
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for stranger in strangers:
        stranger.close()
    if _PRCTL is not None:
        _PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before it could be said
        return
    torch.set_num_threads(1)
    with suppress(EOFError, OSError):  # the other end of the pipe is closed: the parent wants no more, or is gone
        _serve(site, tasks, pipe, arenas)


def _serve(site: Site, tasks: Mapping[str, Task], pipe: Connection, arenas: Room) -> None:
    """Wait for a client, run it, leave the answer in the outbox whose turn it is."""
    while True:
        request, shared, work, layout, turn = pipe.recv()
        work = bundle.work_of(work, views(layout, arenas.inbox.tensor))
        request = replace(request, shared=views(shared, arenas.broadcast.tensor))
        found = answer(site, tasks[request.task], request, work)
        if found.result is None:
            pipe.send((found, None))
            continue
        trees = bundle.found(found.result)
        needed, outbox = room(trees), arenas.outboxes[turn]
        if needed > outbox.size:
            pipe.send((needed, None))
        else:
            pipe.send((replace(found, result=None), place(trees, outbox.tensor)))


def copied(found: Answer, layout: Layout | None, outbox: Arena) -> Answer:
    """The answer with tensors of its own: the outbox is overwritten by the worker's next client but one."""
    if layout is None:
        return found
    trees = {name: clone(tree) for name, tree in views(layout, outbox.tensor).items()}
    return replace(found, result=bundle.result_of(trees))
