"""A worker's two sides, without a process: who writes where, what is said, and how it ends."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accord.client import Answer, Request, Work
from accord.core.types import Result
from accord.executors import worker
from accord.executors.processes import can_fork
from accord.executors.worker import Arena, Room, Worker, WorkerGone, copied, start_worker
from accord.wire.codec import place, room

pytestmark = pytest.mark.skipif(not can_fork(), reason="workers are forked")


class Pipe:
    """Gives what it was given, then the end of the file; notes what is sent."""

    def __init__(self, *messages: Any, broken: bool = False) -> None:
        self.messages, self.sent, self.closed, self.broken = list(messages), list[Any](), False, broken

    def recv(self) -> Any:
        if not self.messages:
            raise EOFError
        return self.messages.pop(0)

    def send(self, message: Any) -> None:
        if self.broken:
            raise BrokenPipeError
        self.sent.append(message)

    def close(self) -> None:
        self.closed = True


class Process:
    """Notes what is done to it; it ends by itself, or only when it is killed."""

    def __init__(self, stubborn: bool = False, exitcode: int = 0) -> None:
        self.said, self.alive, self.exitcode = list[Any](), stubborn, exitcode

    def join(self, timeout: float | None = None) -> None:
        self.said.append(("join", timeout))

    def kill(self) -> None:
        self.said.append("kill")
        self.alive = False

    def is_alive(self) -> bool:
        return self.alive


def arenas(outbox: int = 1000) -> Room:
    return Room(Arena(1000), Arena(1000), (Arena(outbox), Arena(outbox)))


def made(pipe: Pipe | None = None, process: Process | None = None, work: Work | None = None) -> Any:
    theirs: Any = pipe or Pipe()
    other: Any = process or Process()
    return Worker(other, theirs, arenas(), work)


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values)


WORK = Work(7, {"a": {"w": numbers(1, 2)}}, {"m": {"s": numbers(3)}})
HEADER = Request("train", 4, 0.5, {}, ())


def test_an_arena_is_zeros_with_slack_that_forks_see() -> None:
    arena = Arena(24)
    assert arena.size == len(arena.tensor) == 24 + (1 << 20)
    assert arena.tensor.dtype == torch.uint8
    assert not arena.tensor.any()
    if (pid := os.fork()) == 0:
        arena.tensor[5] = 9
        os._exit(0)
    os.waitpid(pid, 0)
    assert int(arena.tensor[5]) == 9


def test_a_client_is_handed_over_without_tensors_in_the_pipe() -> None:
    pipe = Pipe()
    one = made(pipe)
    shared = place({"model": {"w": numbers(5)}}, one.arenas.broadcast.tensor)
    assert (one.work, one.turn) == (None, 0)
    for turn in (1, 0, 1):
        one.hand(HEADER, shared, WORK)
        assert one.work is WORK
        assert one.turn == turn
        assert one.outbox() is one.arenas.outboxes[turn]
        header, layout, client, _, said = pipe.sent.pop()
        assert (header, layout, said) == (HEADER, shared, turn)
        assert client == Work(7, {}, {})
    one.hand(HEADER, shared, Work(3, {}, None))
    assert pipe.sent.pop()[2] == Work(3, {}, None), "new, which is not the same as one who remembers nothing"


def test_one_that_died_while_idle_is_found_out_later() -> None:
    one = made(Pipe(broken=True), Process(exitcode=-9))
    one.hand(HEADER, place({}, one.arenas.broadcast.tensor), WORK)
    assert one.work is WORK
    with pytest.raises(WorkerGone) as gone:
        one.receive()
    assert gone.value.code == -9
    assert one.process.said == ["kill", ("join", None)], "its exit code is known once it was waited for"


def test_an_answer_frees_the_worker() -> None:
    said = (Answer(7, None, "no such luck"), None)
    one = made(Pipe(said), work=WORK)
    assert one.receive() == said
    assert one.work is None
    assert one.process.said == []


@pytest.mark.parametrize("busy", [True, False])
def test_one_is_stopped_at_once_where_it_is_busy_and_by_the_end_of_its_pipe_where_it_is_not(busy: bool) -> None:
    one = made(work=WORK if busy else None)
    worker._OPEN.add(one.pipe)
    one.stop()
    assert one.process.said == ["kill"] * busy
    assert one.pipe.closed
    assert one.pipe not in worker._OPEN


def test_one_that_does_not_end_by_itself_is_killed_after_a_while() -> None:
    one = made()
    one.wait()
    assert one.process.said == [("join", 1.0)]
    one = made(process=Process(stubborn=True))
    one.wait()
    assert one.process.said == [("join", 1.0), "kill", ("join", None)]


def answers(monkeypatch: pytest.MonkeyPatch, results: Sequence[Result | None]) -> list[Any]:
    """Let clients answer these results, one after the other; notes what they were given."""
    given, left = list[Any](), list(results)

    def answer(site: Any, task: Any, request: Request, work: Work) -> Answer:
        given.append((site, task, request, work))
        result = left.pop(0)
        return Answer(work.client, result, "" if result else "failed")

    monkeypatch.setattr(worker, "answer", answer)
    return given


def served(monkeypatch: pytest.MonkeyPatch, results: Sequence[Result | None], outbox: int = 1000) -> tuple[Any, ...]:
    """What a worker says to one message per result, and what its clients were given; outboxes 1, 0, 1..."""
    given = answers(monkeypatch, results)
    there = Pipe()
    theirs: Any = there
    one = Worker(made().process, theirs, arenas(outbox))
    shared = place({"model": {"w": numbers(5, 6)}}, one.arenas.broadcast.tensor)
    for _ in results:
        one.hand(HEADER, shared, WORK)
    here: Any = Pipe(*there.sent)
    tasks: Any = {"train": "the task", "other": "another"}
    site: Any = "the site"
    with pytest.raises(EOFError):
        worker._serve(site, tasks, here, one.arenas)
    return one, here.sent, given


def test_a_worker_runs_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, given = served(monkeypatch, [None])
    ((site, task, request, work),) = given
    assert (site, task) == ("the site", "the task")
    assert (request.task, request.round, request.lr) == ("train", 4, 0.5)
    assert request.shared["model"]["w"].tolist() == [5, 6]
    assert work.client == 7
    assert work.private["a"]["w"].tolist() == [1, 2]
    assert work.memory["m"]["s"].tolist() == [3]


def test_answers_lie_in_two_outboxes_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    results = [Result({"r": {"w": numbers(n)}}, {"m": {"s": numbers(-n)}}, {"loss": numbers(n / 2)}) for n in (1, 2)]
    one, sent, _ = served(monkeypatch, results)
    for number, ((found, layout), outbox) in enumerate(zip(sent, reversed(one.arenas.outboxes), strict=True), 1):
        assert found == Answer(7, None), "without its tensors"
        whole = copied(found, layout, outbox)
        outbox.tensor.zero_()  # the next client but one
        assert whole.client == 7
        assert whole.result is not None
        assert whole.result.reply["r"]["w"].tolist() == [number]
        assert whole.result.memory["m"]["s"].tolist() == [-number]
        assert whole.result.metrics["loss"].tolist() == [number / 2]


def test_a_client_without_a_result_says_why_and_the_next_one_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    _, sent, given = served(monkeypatch, [None, None])
    assert sent == [(Answer(7, None, "failed"), None)] * 2
    assert len(given) == 2
    assert copied(*sent[0], Arena(0)) == Answer(7, None, "failed")


def test_an_answer_too_large_for_its_outbox_is_told_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Result({"r": {"w": torch.ones(1 << 18)}}, {}, {})  # a million bytes
    needed = room({"r": result.reply["r"]})
    assert needed >= 1 << 20
    for slack, fits in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(worker, "SLACK", slack)
        _, ((found, layout),), _ = served(monkeypatch, [result], outbox=0)
        assert (layout is not None) == fits
        assert found == (Answer(7, None) if fits else needed)


@pytest.fixture
def life(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A worker's life in this process, which keeps its signals, threads and parent; what it does is noted."""
    said = list[Any]()
    monkeypatch.setattr(worker.signal, "signal", lambda number, handler: said.append((number, handler)))
    monkeypatch.setattr(worker.signal, "pthread_sigmask", lambda how, mask: said.append((how, mask)))
    monkeypatch.setattr(worker, "_PRCTL", lambda *wanted: said.append(wanted))
    monkeypatch.setattr(worker.os, "getppid", lambda: 41)
    monkeypatch.setattr(worker.torch, "set_num_threads", lambda count: said.append(f"threads {count}"))

    def lived(parent: int = 41, ends: type[Exception] | None = EOFError) -> tuple[list[Any], list[Pipe]]:
        def serve(*given: Any) -> None:
            said.append(given)
            if ends is not None:
                raise ends

        monkeypatch.setattr(worker, "_serve", serve)
        said.clear()
        strangers: Any = [Pipe(), Pipe()]
        given: Any = ("site", "tasks", "pipe", "arenas")
        worker._live(parent, {signal.SIGUSR1}, strangers, *given)
        return list(said), strangers

    return lived


DEAF = [
    (signal.SIGINT, signal.SIG_IGN),
    (signal.SIGTERM, signal.SIG_DFL),
    (signal.SIG_SETMASK, {signal.SIGUSR1}),
]


def test_a_worker_leaves_ctrl_c_to_its_parent_and_ends_with_it(life: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [*DEAF, (1, signal.SIGKILL), "threads 1", ("site", "tasks", "pipe", "arenas")]  # 1: PR_SET_PDEATHSIG
    for ends in (EOFError, OSError, None):
        said, strangers = life(ends=ends)
        assert said == whole
        assert all(stranger.closed for stranger in strangers)
    with pytest.raises(ZeroDivisionError):
        life(ends=ZeroDivisionError)
    monkeypatch.setattr(worker, "_PRCTL", None)
    assert (1, signal.SIGKILL) not in life()[0]


def test_a_worker_whose_parent_is_gone_does_not_begin(life: Any) -> None:
    said, _ = life(parent=40)
    assert said == [*DEAF, (1, signal.SIGKILL)]


def test_signals_to_end_wait_while_a_worker_is_forked() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    with worker._signals_later() as told:
        assert told == before
        assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == {*before, signal.SIGINT, signal.SIGTERM}
    assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == before
    with pytest.raises(ZeroDivisionError), worker._signals_later():
        raise ZeroDivisionError
    assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == before


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A pretended `multiprocessing`: its processes call `start` and know what they were made with."""
    known = SimpleNamespace(start=lambda: None, made=[], pipes=[], kinds=[])

    def process(**given: Any) -> Any:
        known.made.append(given)
        return SimpleNamespace(start=lambda: known.start())

    def pipe() -> tuple[Pipe, Pipe]:
        known.pipes.append((Pipe(), Pipe()))
        return known.pipes[-1]

    def context(kind: str) -> Any:
        known.kinds.append(kind)
        return SimpleNamespace(Pipe=pipe, Process=process)

    monkeypatch.setattr(worker.multiprocessing, "get_context", context)
    monkeypatch.setattr(worker, "_OPEN", type(worker._OPEN)())
    return known


def test_a_worker_knows_its_parent_and_all_pipes_that_are_not_its_own(forks: Any) -> None:
    site: Any = "site"
    tasks: Any = "tasks"
    there = arenas()
    first, second = start_worker(site, tasks, there), start_worker(site, tasks, there)
    assert forks.kinds == ["fork", "fork"]
    for number, (one, given) in enumerate(zip((first, second), forks.made, strict=True), 1):
        ours, theirs = forks.pipes[number - 1]
        assert given["target"] is worker._live
        assert given["daemon"] is True
        parent, mask, strangers, *rest = given["args"]
        assert parent == os.getpid()
        assert mask == signal.pthread_sigmask(signal.SIG_BLOCK, set())
        assert set(strangers) == {pair[0] for pair in forks.pipes[:number]}, "the server's ends, its own too"
        assert rest == [site, tasks, theirs, there]
        assert one.pipe is ours
        assert not ours.closed
        assert theirs.closed
        assert (one.arenas, one.work) == (there, None)
    assert set(worker._OPEN) == {pair[0] for pair in forks.pipes}


def test_where_no_worker_can_be_forked_nothing_stays_open(forks: Any) -> None:
    def refuse() -> None:
        raise OSError("no more")

    forks.start = refuse
    site: Any = None
    for _ in range(2):  # the lock is free again
        with pytest.raises(OSError, match="no more"):
            start_worker(site, {}, arenas())
    assert all(end.closed for pair in forks.pipes for end in pair)
    assert not worker._OPEN
    assert not worker._ONE_AT_A_TIME.locked()


def test_a_warning_of_forks_is_not_for_the_user(forks: Any) -> None:
    forks.start = lambda: warnings.warn("a fork may inherit a lock", DeprecationWarning, stacklevel=1)
    site: Any = None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        start_worker(site, {}, arenas())
        forks.start = lambda: warnings.warn("something else", RuntimeWarning, stacklevel=1)
        with pytest.raises(RuntimeWarning):
            start_worker(site, {}, arenas())


def test_one_worker_is_forked_at_a_time(forks: Any) -> None:
    seen = []
    forks.start = lambda: seen.append(worker._ONE_AT_A_TIME.locked())
    site: Any = None
    start_worker(site, {}, arenas())
    assert seen == [True]
    assert not worker._ONE_AT_A_TIME.locked()
