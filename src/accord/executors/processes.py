"""One single-threaded worker per core, forked, fed through shared memory; bit for bit equal to sequential.

Forked workers see the data set and the tasks in the parent's memory, so nothing is copied or pickled for them. What
changes lies in arenas: anonymous shared mappings made before the fork, one the server writes for all workers and
three per worker: its input, and two for its output in turn, so that it trains its next client while the server copies
the last answer out. Only layouts (names, shapes, offsets) go through pipes. When a message outgrows an arena the
workers are replaced by ones forked with larger arenas; they keep nothing between clients.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch import Tensor

from accord.client import Answer, Request, Site, Work
from accord.core.task import Task
from accord.core.tensors import Trees, clone
from accord.core.types import Result
from accord.executors.allocator import keep_freed_memory
from accord.executors.registry import EXECUTORS, GLADLY, NEVER, Choice, Done, nobody
from accord.executors.sequential import answer, one_thread
from accord.wire.codec import Layout, place, room, views

SLACK = 1 << 20


def can_fork() -> bool:
    """Whether this system can fork."""
    return "fork" in multiprocessing.get_all_start_methods()


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Arena:
    """Memory that a process and its later forks all see."""

    def __init__(self, size: int) -> None:
        self.size = size + SLACK
        self.tensor: Tensor = torch.frombuffer(mmap.mmap(-1, self.size), dtype=torch.uint8)


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    inbox: _Arena
    outboxes: tuple[_Arena, _Arena]
    work: Work | None = None
    turn: int = 0  # which outbox its present client writes


def _spread(prefix: str, trees: Trees) -> Trees:
    return {f"{prefix}:{name}": tree for name, tree in trees.items()}


def _gather(prefix: str, trees: Trees) -> Trees:
    start = len(prefix) + 1
    return {name[start:]: tree for name, tree in trees.items() if name.startswith(prefix + ":")}


def _serve(
    site: Site,
    tasks: Mapping[str, Task],
    pipe: Connection,
    broadcast: _Arena,
    inbox: _Arena,
    outboxes: tuple[_Arena, _Arena],
) -> None:
    """A worker's life: wait for a client, run it, leave the answer in the outbox whose turn it is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    torch.set_num_threads(1)
    while (message := pipe.recv()) is not None:
        request, shared, work, layout, turn = message
        trees = views(layout, inbox.tensor)
        memory = _gather("memory", trees) if work.memory is not None else None
        work = replace(work, private=_gather("private", trees), memory=memory)
        request = replace(request, shared=views(shared, broadcast.tensor))
        found = answer(site, tasks[request.task], request, work)
        if found.result is None:
            pipe.send((found, None))
            continue
        result = found.result
        trees = {
            **_spread("reply", result.reply),
            **_spread("memory", result.memory),
            "metrics": result.metrics,
        }
        needed, outbox = room(trees), outboxes[turn]
        if needed > outbox.size:
            pipe.send((needed, None))
        else:
            pipe.send((replace(found, result=None), place(trees, outbox.tensor)))


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
        self.workers: list[_Worker] = []
        self.broadcast = _Arena(0)
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

        def hand_out() -> None:
            for worker in self.workers:
                if worker.work is None and waiting:
                    self._hand(worker, header, shared, waiting.pop())

        while len(answers) < len(request.works):
            hand_out()
            busy: dict[Any, _Worker] = {worker.pipe: worker for worker in self.workers if worker.work is not None}
            for pipe in wait(list(busy)):
                worker = busy[pipe]
                work = worker.work
                if work is None:  # its pool was replaced a moment ago
                    continue
                turn = worker.turn
                found, layout = self._receive(worker)
                if isinstance(found, int):
                    waiting.append(work)
                    waiting += [w.work for w in self.workers if w.work is not None]
                    self.room = (self.room[0], found)
                    self._restart()
                    break
                hand_out()  # before the copy below, so that no worker waits for it
                answers[found.client] = _copied(found, layout, worker.outboxes[turn])
                self.done(len(answers), len(request.works))
        return list(answers.values())

    def close(self) -> None:
        """Stop the workers."""
        for worker in self.workers:
            with suppress(OSError):  # it died before; joining below is all that is left to do
                worker.pipe.send(None)
        for worker in self.workers:
            worker.process.join(timeout=5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.pipe.close()
        self.workers = []

    def _make_room(self, request: Request) -> None:
        inbox = max((room(work.private) + room(work.memory or {}) for work in request.works), default=0)
        broadcast = room(request.shared)
        outbox = max(self.room[1], 2 * broadcast + inbox)
        if self.workers and broadcast <= self.broadcast.size and inbox <= self.room[0] + SLACK:
            return
        if broadcast > self.broadcast.size:
            self.broadcast = _Arena(broadcast)
        self.room = (max(inbox, self.room[0]), outbox)
        self._restart()

    def _restart(self) -> None:
        for worker in self.workers:
            if worker.work is not None:
                worker.process.kill()
        self.close()
        self.workers = [self._fork(number) for number in range(self.count)]

    def _fork(self, number: int) -> _Worker:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        inbox, outboxes = _Arena(self.room[0]), (_Arena(self.room[1]), _Arena(self.room[1]))
        process = context.Process(
            target=_serve, args=(self.site, self.tasks, theirs, self.broadcast, inbox, outboxes), daemon=True
        )
        with warnings.catch_warnings():
            # Newer Pythons warn that a forked child may inherit a held lock. The child runs torch on one thread and
            # touches no lock of ours, which is how torch's own data loaders fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        if self.count == cores():
            _pin(process, number)
        return _Worker(process, ours, inbox, outboxes)

    def _hand(self, worker: _Worker, header: Request, shared: Layout, work: Work) -> None:
        trees = {**_spread("private", work.private), **_spread("memory", work.memory or {})}
        layout = place(trees, worker.inbox.tensor)
        known: Trees | None = None if work.memory is None else {}
        worker.work, worker.turn = work, 1 - worker.turn
        try:
            worker.pipe.send((header, shared, Work(work.client, {}, known), layout, worker.turn))
        except OSError:  # a worker that died while idle: `_receive` finds its pipe closed and replaces it
            return

    def _receive(self, worker: _Worker) -> tuple[Answer | int, Layout | None]:
        """The answer and where its tensors lie, or the size the outbox should have had. The worker is free again."""
        work = worker.work
        assert work is not None
        try:
            found, layout = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            reason = f"its worker process ended unexpectedly (exit code {worker.process.exitcode})"
            number = self.workers.index(worker)
            self.workers[number] = self._fork(number)
            return Answer(work.client, None, reason), None
        worker.work = None
        return found, layout


def _pin(process: BaseProcess, number: int) -> None:
    """Keep the worker on a core of its own: one that is moved leaves its caches behind.

    For pools that have all cores; where a part was asked for, another run may want the rest.
    """
    if hasattr(os, "sched_setaffinity") and process.pid is not None:
        with suppress(OSError):  # it ended already, or the system does not allow it
            os.sched_setaffinity(process.pid, {sorted(os.sched_getaffinity(0))[number]})


def _copied(found: Answer, layout: Layout | None, outbox: _Arena) -> Answer:
    """The answer with tensors of its own: the outbox is overwritten by the worker's next client but one."""
    if layout is None:
        return found
    trees = {name: clone(tree) for name, tree in views(layout, outbox.tensor).items()}
    return replace(found, result=Result(_gather("reply", trees), _gather("memory", trees), trees["metrics"]))
