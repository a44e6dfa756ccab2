"""How a pool of processes deals out clients, with pretended workers that answer in this process."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from accord.client import Answer, Request, Work
from accord.errors import RunError
from accord.executors import processes
from accord.executors.processes import Processes, cores
from accord.executors.registry import GLADLY, NEVER
from accord.executors.worker import WorkerGone

SIZES = (4, 9, 4, 20, 9)  # samples by client


class Pretended:
    """A worker as the pool sees it. `fates` says by client what its next answers are; without any it just answers."""

    def __init__(self, pool: Pool, number: int, arenas: Any) -> None:
        self.pool, self.number, self.arenas = pool, number, arenas
        self.pipe, self.work, self.process = object(), None, SimpleNamespace(pid=100 + number)
        self.stopped = False

    def hand(self, header: Request, shared: Any, work: Work) -> None:
        assert self.work is None
        self.work = work
        self.pool.note("hand", self.number, work.client)
        self.pool.headers.append((header, shared))

    def receive(self) -> Any:
        assert not self.stopped, "its pipe is closed"
        client = self.work.client
        fates = self.pool.fates.get(client, [])
        fate = fates.pop(0) if fates else "well"
        if fate == "gone":
            raise WorkerGone(-9)
        self.work = None
        return (fate, None) if isinstance(fate, int) else (Answer(client, None, fate), None)

    def outbox(self) -> str:
        return f"outbox of {self.work.client}"

    def stop(self) -> None:
        self.stopped = True
        self.pool.note("stop", self.number)

    def wait(self) -> None:
        self.pool.note("wait", self.number)


class Pool:
    """A pool of pretended workers, and all that happens in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, workers: int, fates: dict[int, list[Any]] | None = None):
        self.fates, self.said, self.headers = fates or {}, list[Any](), list[Any]()
        self.started = 0
        site: Any = SimpleNamespace(data=SimpleNamespace(sizes=np.array(SIZES)))
        tasks: Any = {"train": None}
        monkeypatch.setattr(processes, "start_worker", self.start)
        monkeypatch.setattr(processes, "wait", self.answered)
        monkeypatch.setattr(processes, "copied", self.copied)
        monkeypatch.setattr(processes, "_pin", lambda process, number: self.note("pin", process.pid, number))
        self.executor = Processes(site, tasks, workers, lambda done, total: self.note("done", done, total))
        self.site, self.tasks = site, tasks

    def note(self, *what: Any) -> None:
        self.said.append(what)

    def answered(self, pipes: list[Any]) -> list[Any]:
        """All that are busy."""
        assert pipes, "nobody is busy, and there are clients left"
        return pipes

    def only(self, kind: str) -> list[Any]:
        return [what[1:] for what in self.said if what[0] == kind]

    def start(self, site: Any, tasks: Any, arenas: Any) -> Any:
        assert site is self.site
        assert tasks is self.tasks
        self.started += 1
        return Pretended(self, self.started, arenas)

    def copied(self, found: Answer, layout: Any, outbox: str) -> Answer:
        assert layout is None
        assert outbox == f"outbox of {found.client}", "where it lay before the worker had its next client"
        self.note("copy", found.client)
        return found

    def run(self, *clients: int, private: int = 0) -> dict[int, str]:
        shared = {"model": {"w": torch.arange(3.0)}}
        own = {"own": {"w": torch.zeros(private, dtype=torch.uint8)}}
        request = Request("train", 2, 0.5, shared, [Work(client, own, None) for client in clients])
        return {answer.client: answer.error for answer in self.executor.run(request)}


def test_the_longest_clients_go_first_and_equal_ones_by_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(monkeypatch, 1)
    assert pool.run(0, 1, 2, 3, 4) == dict.fromkeys(range(5), "well")
    assert pool.only("hand") == [(1, 3), (1, 1), (1, 4), (1, 0), (1, 2)]
    assert pool.only("done") == [(n, 5) for n in (1, 2, 3, 4, 5)]
    header, layout = pool.headers[0]
    assert header == Request("train", 2, 0.5, {}, ()), "tensors and the others' works stay here"
    assert all(other == (header, layout) for other in pool.headers)


def test_a_worker_has_its_next_client_before_its_answer_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(monkeypatch, 2)
    pool.run(0, 1, 2, 3)
    told = [what for what in pool.said if what[0] in {"hand", "copy"}]
    assert told == [
        *(("hand", 1, 3), ("hand", 2, 1)),
        *(("hand", 1, 0), ("copy", 3)),
        *(("hand", 2, 2), ("copy", 1)),
        *(("copy", 0), ("copy", 2)),
    ]


def test_workers_stay_for_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(monkeypatch, 2)
    pool.run(0, 1)
    pool.run(2)
    assert pool.started == 2
    assert pool.executor.run(Request("train", 0, 0.5, {}, [])) == []


def test_a_lost_workers_client_is_next_for_the_one_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(monkeypatch, 2, {3: ["gone", "gone"]})
    assert pool.run(0, 3, 2) == {0: "well", 2: "well", 3: "well"}
    assert pool.only("hand")[0] == (1, 3)
    assert [worker.number for worker in pool.executor.workers] in ([3, 2], [4, 2], [3, 4])
    assert len(pool.only("stop")) == 2
    assert pool.started == 4


def test_a_client_that_loses_three_workers_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(monkeypatch, 1, {3: ["gone"] * 9, 1: ["gone"] * 2})
    found = pool.run(0, 1, 3)
    assert found.pop(3).startswith("its worker was killed 3 times (exit code -9)")
    assert found == {0: "well", 1: "well"}
    assert pool.only("hand") == [(1, 3), (2, 3), (3, 3), (4, 1), (5, 1), (6, 1), (6, 0)]
    assert pool.only("done") == [(1, 3), (2, 3), (3, 3)], "one that failed is done too"


def test_an_answer_without_room_makes_room_for_all_and_loses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(monkeypatch, 2, {3: [5_000_000]})
    assert pool.run(0, 1, 2, 3) == dict.fromkeys(range(4), "well")
    assert pool.executor.room[1] == 5_000_000
    assert pool.only("stop") == [(1,), (2,)]
    assert pool.started == 4
    handed = pool.only("hand")
    assert handed[:2] == [(1, 3), (2, 1)]
    assert {client for _, client in handed[2:4]} == {1, 3}
    assert {number for number, _ in handed[2:]} == {3, 4}
    assert sorted(client for _, client in handed[2:]) == [0, 1, 2, 3], "both that were busy begin again"
    for worker in pool.executor.workers:
        outboxes = worker.arenas.outboxes  # type: ignore[attr-defined]
        assert all(outbox.size >= 5_000_000 for outbox in outboxes)
        assert outboxes[0] is not outboxes[1]
        assert worker.arenas.broadcast is pool.executor.broadcast


def test_room_that_was_made_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of five million bytes first, then private tensors of two, then of three million: room for both."""
    pool = Pool(monkeypatch, 1, {3: [5_000_000], 1: [6_000_000]})
    pool.run(3)
    assert pool.executor.room == (0, 5_000_000)
    pool.run(0, private=2_000_000)
    assert pool.executor.room == (2_000_000, 5_000_000)
    pool.run(1)
    assert pool.executor.room == (2_000_000, 6_000_000)
    pool.run(0, private=3_200_000)
    assert pool.executor.room == (3_200_000, 6_000_000)


def test_lost_workers_are_counted_anew_in_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(monkeypatch, 1, {3: ["gone", "gone", "well", "gone", "gone", "well"]})
    for _ in range(2):
        assert pool.run(3) == {3: "well"}


def test_all_are_told_to_end_before_one_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(monkeypatch, 2)
    pool.run(0)
    pool.said.clear()
    pool.executor.close()
    assert pool.said == [("stop", 1), ("stop", 2), ("wait", 1), ("wait", 2)]
    assert pool.executor.workers == []
    pool.executor.close()
    assert len(pool.said) == 4


def test_workers_are_pinned_where_the_pool_has_all_cores_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 2)
    for workers, share, pinned in ((0, [], True), (2, [], True), (1, [], False), (3, [], False), (2, [2], False)):
        monkeypatch.setattr(processes, "_SHARE", share)
        pool = Pool(monkeypatch, workers)
        pool.run(0)
        assert pool.started == (workers or 2)
        assert pool.only("pin") == ([(101, 0), (102, 1)] if pinned else [])


def test_a_worker_that_cannot_be_started_is_named_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(monkeypatch, 3)

    def refuse(*given: Any) -> Any:
        if len(pool.executor.workers) == 1:
            raise OSError(*error)
        return Pretended(pool, 1, None)

    monkeypatch.setattr(processes, "start_worker", refuse)
    for error in (("no strerror",), (12, "no memory")):
        with pytest.raises(RunError, match=rf"cannot start worker process 2 of 3: {error[-1]}\. Use fewer"):
            pool.run(0)
        pool.executor.close()


def test_a_worker_is_pinned_to_the_core_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = dict[int, set[int]]()

    def pin(pid: int, places: set[int]) -> None:
        pinned[pid] = places
        if pid == 13:
            raise ProcessLookupError

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {9, 40, 3}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", pin, raising=False)
    for pid, number in ((11, 0), (12, 2), (13, 1), (None, 0)):
        process: Any = SimpleNamespace(pid=pid)
        processes._pin(process, number)
    assert pinned == {11: {3}, 12: {40}, 13: {9}}
    monkeypatch.delattr(os, "sched_setaffinity")
    process = SimpleNamespace(pid=14)
    processes._pin(process, 0)


def test_cores_are_those_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_SHARE", [])
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 9} if pid == 0 else {1}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert cores() == 3
    processes.share_cores(2)
    assert cores() == 2
    processes.share_cores(8)
    assert cores() == 3
    monkeypatch.setattr(processes, "_SHARE", [])
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


def test_processes_pay_where_there_are_clients_and_cores_to_share(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cpu")
    for clients, here, chosen in ((2, 2, GLADLY), (1, 2, NEVER), (2, 1, NEVER), (0, 0, NEVER)):
        monkeypatch.setattr(processes, "cores", lambda here=here: here)
        assert Processes.pays(device, clients) == chosen


def test_processes_need_a_system_that_can_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = ["spawn", "fork"]
    monkeypatch.setattr(processes.multiprocessing, "get_all_start_methods", lambda: starts)
    assert processes.can_fork()
    assert Processes.obstacle() == ""
    starts.remove("fork")
    assert not processes.can_fork()
    assert "needs a system that can fork" in Processes.obstacle()


def test_a_pool_is_made_as_large_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 6)
    site: Any = object()
    tasks: Any = object()
    done: Any = object()
    for workers, count in ((0, 6), (1, 1), (9, 9)):
        pool = Processes.make(site, tasks, workers=workers, done=done)
        assert (pool.site, pool.tasks, pool.done, pool.count) == (site, tasks, done, count)
    assert Processes(site, tasks).count == 6
    assert Processes.devices == ("cpu",)
