"""One single-threaded worker per core, forked, fed through shared memory; bit for bit equal to sequential.

Forked workers see the data set and the tasks in the parent's memory, so nothing is copied or pickled for them. They
keep nothing between clients: when a message outgrows an arena they are replaced by ones forked with larger arenas, and
the client of a worker that was killed is run again by a new one, to the same bits.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from accord.client import Answer, Request, Site
from accord.core.task import Task
from accord.errors import RunError
from accord.executors.allocator import keep_freed_memory
from accord.executors.registry import EXECUTORS, GLADLY, NEVER, Choice, Done, nobody
from accord.executors.sequential import one_thread
from accord.executors.worker import SLACK, Arena, Room, Worker, WorkerGone, copied, start_worker
from accord.wire.codec import place, room

TRIES = 3  # of a client whose workers are killed


def can_fork() -> bool:
    """Whether this system can fork."""
    return "fork" in multiprocessing.get_all_start_methods()


_SHARE: list[int] = []  # cores left to this process where others run beside it; nothing: all


def share_cores(count: int) -> None:
    """From now on this process has no more than `count` cores: the others belong to runs beside this one."""
    _SHARE[:] = [count]


def cores() -> int:
    """Cores this process may use."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([here, *_SHARE])


@EXECUTORS.add("processes")
class Processes(Choice):
    """A pool of processes, one per core or as many as `workers` says.

    Clients are handed out longest first, so that no core waits for a long one at the end.
    """

    devices = ("cpu",)

    def __init__(
        self,
        site: Site,
        tasks: Mapping[str, Task],
        workers: int = 0,
        done: Done = nobody,
    ) -> None:
        keep_freed_memory()  # for the answers here, and for the workers, who inherit it
        self.site, self.tasks, self.done = site, tasks, done
        self.count = workers or cores()
        self.workers: list[Worker] = []
        self.broadcast = Arena(0)
        self.room = (0, 0)  # inbox, outbox

    @classmethod
    def obstacle(cls) -> str:
        """Workers are forked."""
        return "" if can_fork() else "executor = 'processes' needs a system that can fork: use executor = 'auto'"

    @classmethod
    def pays(cls, device: torch.device, clients: int) -> int:
        """Where there are clients and cores to share."""
        return GLADLY if clients > 1 and cores() > 1 else NEVER

    @classmethod
    def make(cls, site: Site, tasks: Mapping[str, Task], *, workers: int, done: Done) -> Processes:
        """A pool of `workers`; 0: one per core."""
        return cls(site, tasks, workers, done)

    @one_thread()  # the cores are the workers'
    def run(self, request: Request) -> list[Answer]:
        """Hand out clients until all have answered."""
        self._make_room(request)
        shared = place(request.shared, self.broadcast.tensor)
        header = replace(request, shared={}, works=())
        sizes = self.site.data.sizes
        # Popped from the end: the longest first; ties by id, so that a failing run fails the same way again.
        waiting = sorted(request.works, key=lambda work: (sizes[work.client], -work.client))
        answers: dict[int, Answer] = {}
        killed: Counter[int] = Counter()  # workers, by the client they had

        def hand_out() -> None:
            for worker in self.workers:
                if worker.work is None and waiting:
                    worker.hand(header, shared, waiting.pop())

        while len(answers) < len(request.works):
            hand_out()
            busy: dict[Any, Worker] = {worker.pipe: worker for worker in self.workers if worker.work is not None}
            for pipe in wait(list(busy)):
                worker = busy[pipe]
                work, outbox = worker.work, worker.outbox()
                assert work is not None  # it is busy
                try:
                    found, layout = worker.receive()
                except WorkerGone as gone:
                    self._replace(worker)
                    killed[work.client] += 1
                    if killed[work.client] < TRIES:
                        waiting.append(work)
                        continue
                    found, layout = Answer(work.client, None, _epitaph(gone.code)), None
                if isinstance(found, int):
                    waiting.append(work)
                    waiting += [w.work for w in self.workers if w.work is not None]
                    self.room = (self.room[0], found)
                    self._restart()
                    break
                hand_out()  # before the copy below, so that no worker waits for it
                answers[found.client] = copied(found, layout, outbox)
                self.done(len(answers), len(request.works))
        return list(answers.values())

    def close(self) -> None:
        """Stop the workers."""
        for worker in self.workers:
            worker.stop()
        for worker in self.workers:
            worker.wait()
        self.workers = []

    def _make_room(self, request: Request) -> None:
        inbox = max((room(work.private) + room(work.memory or {}) for work in request.works), default=0)
        broadcast = room(request.shared)
        outbox = max(self.room[1], 2 * broadcast + inbox)
        if self.workers and broadcast <= self.broadcast.size and inbox <= self.room[0] + SLACK:
            return
        if broadcast > self.broadcast.size:
            self.broadcast = Arena(broadcast)
        self.room = (max(inbox, self.room[0]), outbox)
        self._restart()

    def _restart(self) -> None:
        self.close()
        for number in range(self.count):
            self.workers.append(self._start(number))

    def _replace(self, worker: Worker) -> None:
        number = self.workers.index(worker)
        worker.stop()
        self.workers[number] = self._start(number)

    def _start(self, number: int) -> Worker:
        inbox, outbox = self.room
        try:
            worker = start_worker(
                self.site, self.tasks, Room(self.broadcast, Arena(inbox), (Arena(outbox), Arena(outbox)))
            )
        except OSError as error:
            raise RunError(
                f"cannot start worker process {number + 1} of {self.count}: {error.strerror or error}. Use fewer "
                "(workers), or executor = 'sequential', or allow this process more files, processes or memory (ulimit)"
            ) from error
        if self.count == cores() and not _SHARE:
            _pin(worker.process, number)
        return worker


def _epitaph(code: int | None) -> str:
    """Why a client whose workers did not survive it has no answer."""
    by_signal = code is not None and code < 0
    return (
        f"its worker {'was killed' if by_signal else 'ended'} {TRIES} times (exit code {code}): "
        "if memory ran out (exit code -9), use fewer workers or give the machine more of it"
    )


def _pin(process: BaseProcess, number: int) -> None:
    """Keep the worker on a core of its own: one that is moved leaves its caches behind.

    For pools that have all cores; where a part was asked for, another run may want the rest.
    """
    if hasattr(os, "sched_setaffinity") and process.pid is not None:
        with suppress(OSError):  # it ended already, or the system does not allow it
            os.sched_setaffinity(process.pid, {sorted(os.sched_getaffinity(0))[number]})
