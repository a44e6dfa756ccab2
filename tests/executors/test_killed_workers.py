"""Workers that the system kills cost nobody anything, and no worker outlives its parent."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from accord.core.task import Part
from accord.errors import RunError
from accord.executors.processes import Processes, can_fork
from accord.executors.sequential import Sequential
from accord.parts.averaging import averaging
from support.federation import TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup

pytestmark = pytest.mark.skipif(not can_fork(), reason="workers are forked")


@dataclass(frozen=True)
class Deadly(Part):
    """Kills its worker on some clients, `lives` times in every round, counted by files; never the tests' process."""

    folder: Path
    lives: int
    how: int = signal.SIGKILL
    clients: tuple[int, ...] = (2,)
    spared: int = 0

    def begin(self, model: Any, job: Any) -> dict[str, Any]:
        client, round = int(job.info["client"]), int(job.info["round"])
        mark = self.folder / f"{client}-{round}"
        marks = mark.read_text() if mark.exists() else ""
        if client in self.clients and len(marks) < self.lives and os.getpid() != self.spared:
            mark.write_text(marks + "x")
            os.kill(os.getpid(), self.how)
        return {}


@contextmanager
def pool(part: Part, workers: int = 2, **options: Any) -> Iterator[TinyRun]:
    data, model = tiny_data(), tiny_model()
    run = TinyRun(
        averaging(tiny_setup(data, model), part),
        data=data,
        model=model,
        executor=partial(Processes, workers=workers),
        **options,
    )
    try:
        yield run
    finally:
        run.close()


def undisturbed(rounds: int) -> Any:
    data, model = tiny_data(), tiny_model()
    return TinyRun(averaging(tiny_setup(data, model)), data=data, model=model, executor=Sequential).rounds(rounds)


@pytest.mark.parametrize("lives", [1, 2])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("clients", [(2,), (0, 1, 2, 3)])
def test_a_killed_workers_client_is_run_again_to_the_same_bits(
    tmp_path: Path, lives: int, how: int, clients: tuple[int, ...]
) -> None:
    with pool(Deadly(tmp_path, lives, how, clients, os.getpid())) as run:
        run.rounds(2)
        assert run.replies is not None
        assert run.replies.ids == (0, 1, 2, 3)
        assert run.replies.missing == {}
        assert equal_trees(run.state, undisturbed(2).state)
    assert sorted(mark.name for mark in tmp_path.iterdir()) == sorted(f"{c}-{r}" for c in clients for r in (0, 1))


def test_a_client_that_kills_every_worker_fails_after_three(tmp_path: Path) -> None:
    with pool(Deadly(tmp_path, 99, spared=os.getpid()), tolerate=0.25) as run:
        run.rounds(1)
        assert run.replies is not None
        assert run.replies.ids == (0, 1, 3)
        assert run.replies.missing[2].startswith("its worker was killed 3 times (exit code -9)")
        assert (tmp_path / "2-0").read_text() == "xxx"
    with (
        pool(Deadly(tmp_path, 99, spared=os.getpid())) as run,
        pytest.raises(RunError, match="client 2: its worker was killed 3 times"),
    ):
        run.rounds(1)


def test_a_worker_killed_while_idle_is_replaced(tmp_path: Path) -> None:
    with pool(Deadly(tmp_path, 0)) as run:
        run.rounds(1)
        assert isinstance(run.executor, Processes)
        for worker in run.executor.workers:
            worker.process.kill()
            worker.process.join()
        run.rounds(1)
        assert equal_trees(run.state, undisturbed(2).state)


def test_idle_workers_end_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accord.executors.worker.PATIENCE", 20.0)  # on a busy machine
    with pool(Deadly(tmp_path, 0)) as run:
        run.rounds(1)
        workers = list(run.executor.workers)  # type: ignore[attr-defined]
    assert [worker.process.exitcode for worker in workers] == [0, 0]  # -9 were a killed one
    assert all(worker.pipe.closed for worker in workers)


def test_a_busy_pool_closes_at_once() -> None:
    """A worker keeps nothing, so there is nothing to wait for."""
    with pool(Slow(30.0)) as run:
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        try:
            with pytest.raises(KeyboardInterrupt):
                run.rounds(1)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        began = time.monotonic()
        run.close()
        assert time.monotonic() - began < 2


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


@dataclass(frozen=True)
class Slow(Part):
    """Takes its time on every client."""

    seconds: float

    def begin(self, model: Any, job: Any) -> dict[str, Any]:
        time.sleep(self.seconds)
        return {}


@dataclass(frozen=True)
class Telling(Slow):
    """Says which process it is in."""

    def begin(self, model: Any, job: Any) -> dict[str, Any]:
        os.write(1, f"{os.getpid()}\n".encode())
        return super().begin(model, job)


PARENT = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are born deaf to it
from functools import partial
from accord.parts.averaging import averaging
from accord.executors import worker
from accord.executors.processes import Processes
from support.federation import TinyRun, tiny_data, tiny_model, tiny_setup
from test_killed_workers import Telling

if sys.argv[1] == "by-end-of-file":
    worker._PRCTL = None
data, model = tiny_data(), tiny_model()
def run(seconds):
    method = averaging(tiny_setup(data, model), Telling(seconds))
    return TinyRun(method, data=data, model=model, executor=partial(Processes, workers=2)).rounds(1)
kept = [run(0.1), run(0.1)]  # two pools: each sees pipes of the other
print("idle", flush=True)
if sys.argv[2] == "busy":
    run(60)
time.sleep(60)
"""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("way", "state", "how"),
    [
        ("by-signal", "busy", signal.SIGKILL),
        ("by-end-of-file", "idle", signal.SIGKILL),
        ("by-signal", "busy", signal.SIGINT),
    ],
)
def test_no_worker_outlives_its_parent(tmp_path: Path, way: str, state: str, how: int) -> None:
    """Neither where the kernel tells them (Linux), nor where only the end of the pipe does."""
    tests = Path(__file__).parents[1]
    (tmp_path / "parent.py").write_text(PARENT)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (tests.parent / "src", tests, tests / "executors")))}
    command = [sys.executable, str(tmp_path / "parent.py"), way, state]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True)
    try:
        assert parent.stdout is not None
        lines = iter(parent.stdout.readline, "")
        workers = {int(pid) for pid in iter(lambda: next(lines), "idle\n")}
        assert len(workers) == 4
        if state == "busy":
            workers |= {int(next(lines)), int(next(lines))}
            assert len(workers) == 6
        parent.send_signal(how)
        parent.wait(10)
        deadline = time.monotonic() + 3
        while any(map(alive, workers)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not any(map(alive, workers))
    finally:
        parent.kill()
        parent.communicate()


def test_too_few_descriptors_are_one_sentence() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pool(Slow(0.0), workers=64) as run:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 30, hard))
        try:
            with pytest.raises(
                RunError, match=r"cannot start worker process \d+ of 64: Too many open files\. Use fewer"
            ):
                run.rounds(1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        workers = [worker.process for worker in run.executor.workers]  # type: ignore[attr-defined]
        assert 0 < len(workers) < 64
    assert not any(process.is_alive() for process in workers)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
def test_too_few_processes_or_too_little_memory_is_one_sentence(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse() -> int:
        raise OSError(number, os.strerror(number))

    with pool(Slow(0.0)) as run:
        monkeypatch.setattr(os, "fork", refuse)
        with pytest.raises(RunError, match=f"cannot start worker process 1 of 2: {os.strerror(number)}"):
            run.rounds(1)
