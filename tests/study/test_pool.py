"""Runs side by side: the same bits, failures that cost nobody else, stops that leave nobody at work."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
import torch

import accord
from accord.config import RunConfig
from accord.errors import AccordError, ConfigError, DataError, RunError
from accord.executors.processes import cores
from accord.observe import Observer
from accord.study.pool import Listener, Tell, how_many, side_by_side
from support.study import SETS, Breaker, Notes


class Ear(Listener):
    def __init__(self) -> None:
        self.heard: dict[int, list[Any]] = {}
        self.most = self.now = 0

    def started(self, place: int) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    def told(self, place: int, value: Any) -> None:
        self.heard.setdefault(place, []).append(value)

    def ended(self, place: int, error: AccordError | None) -> None:
        self.now -= 1
        self.heard.setdefault(place, []).append(None if error is None else (type(error), str(error)))


def square(number: int, tell: Tell) -> None:
    tell({"square": number**2, "core": cores()})


def fail(error: BaseException, tell: Tell) -> None:
    raise error


def sleep(seconds: float, tell: Tell) -> None:
    time.sleep(seconds)


def die(tell: Tell) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_every_piece_is_carried_out_in_a_process_of_its_own() -> None:
    ear = Ear()
    side_by_side([partial(square, n) for n in range(5)], 2, ear)
    assert [ear.heard[n] for n in range(5)] == [
        [{"square": n**2, "core": max(cores() // 2, 1)}, None] for n in range(5)
    ]
    assert ear.most == 2


def test_what_fails_is_told_by_kind_and_costs_no_other() -> None:
    ear = Ear()
    works = [partial(fail, DataError("bad")), partial(fail, ValueError("odd")), die, partial(square, 3)]
    side_by_side(works, 4, ear)
    assert ear.heard[0] == [(DataError, "bad")]
    assert ear.heard[1] == [(RunError, "ValueError: odd")]
    ((kind, text),) = ear.heard[2]
    assert kind is RunError
    assert "was killed (exit code -9)" in text
    assert ear.heard[3][0]["square"] == 9


def test_how_many() -> None:
    assert how_many("auto", 100, False) == cores()
    assert how_many("auto", 1, False) == how_many("auto", 0, True) == 1
    assert how_many(7, 2, True) == 7
    for wrong in (0, "many", 1.5, True):
        with pytest.raises(ConfigError, match="jobs"):
            how_many(wrong, 3, False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("work", "ends"),
    [
        (partial(square, 3), [None]),
        (partial(fail, ValueError("wrong")), [(RunError, "ValueError: wrong")]),
        (partial(sleep, 60), []),  # it is stopped
    ],
)
@pytest.mark.parametrize("broken", [False, True])
def test_who_leaves_a_gpu_waits_for_what_is_under_way_there(
    work: Any, ends: list[Any], broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its end, after a failure and when it is told to stop; a GPU that failed is no further failure."""
    waited = tmp_path / "waited"

    def synchronize() -> None:
        waited.touch()
        if broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    ear = Ear()
    side_by_side([work], 1, ear, until=time.monotonic() + 1.5)
    assert waited.exists()
    assert ear.heard.get(0, [])[-1:] == ends


def test_in_time_nobody_is_at_work_any_more() -> None:
    class Stops(Ear):
        def stopped(self, place: int) -> None:
            self.heard.setdefault(place, []).append("stopped")

    ear = Stops()
    begin = time.monotonic()
    side_by_side([partial(square, 2), partial(sleep, 60), partial(square, 3)], 1, ear, until=begin + 2)
    assert time.monotonic() - begin < 3
    assert ear.heard[0][-1] is None
    assert ear.heard[1] == ["stopped"]
    assert 2 not in ear.heard, "the third had not begun"


def test_who_listens_is_told_now_and_then_who_is_at_work() -> None:
    class Looks(Ear):
        pause = 0.2

        def __init__(self) -> None:
            super().__init__()
            self.seen: list[list[int]] = []

        def under_way(self, places: Sequence[int]) -> None:
            self.seen.append(sorted(places))

    ear = Looks()
    side_by_side([partial(sleep, 1.5), partial(sleep, 1.5), partial(square, 2)], 2, ear)
    assert ear.seen[0] == [0, 1]
    assert 2 <= len(ear.seen) <= 1 + 20 / 0.2  # starting a process takes a while, too
    assert all(heard[-1] is None for heard in ear.heard.values())
    quiet = Ear()
    side_by_side([partial(sleep, 0.5)], 1, quiet)  # nobody asked
    assert quiet.heard == {0: [None]}


SILENT = """
import os, signal, sys, time
from accord.study.pool import Listener, side_by_side

heard = signal.pthread_kill

def lost(thread, number):
    signal.pthread_kill = heard

def wait(tell):
    if sys.argv[2] == "lost":
        signal.pthread_kill = lost
    os.write(1, b"at work\\n")  # in one piece: two processes write into one pipe
    time.sleep(600)

if __name__ == "__main__":
    side_by_side([wait, wait], 2, Listener(), on_gpu=sys.argv[1] == "forkserver")
"""


@pytest.mark.parametrize(("method", "first"), [("fork", "heard"), ("forkserver", "heard"), ("fork", "lost")])
def test_who_tells_nothing_does_not_outlive_a_killed_parent(method: str, first: str, tmp_path: Path) -> None:
    (tmp_path / "silent.py").write_text(SILENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(tmp_path / "silent.py"), method, first]
    with (tmp_path / "errors").open("wb") as errors:
        parent = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, bufsize=0)
    try:
        assert parent.stdout is not None
        said = [line_within(parent.stdout, 60) for _ in range(2)]
        assert said == [b"at work\n"] * 2, (tmp_path / "errors").read_text()
        parent.kill()
        assert line_within(parent.stdout, 60) == b"", "it ends when the last who could write is gone"
    finally:
        parent.kill()
        parent.wait()
        if parent.stdout is not None:
            parent.stdout.close()  # whoever is left would hold the other end


def line_within(pipe: IO[bytes], seconds: float) -> bytes | None:
    """None if there was none in time, nor an end."""
    ready, _, _ = select.select([pipe], [], [], seconds)
    return pipe.readline() if ready else None


def folders(result: Any) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in result.folder.glob("*/metrics.jsonl")}


def test_a_comparison_has_the_same_bits_and_a_failed_run_is_named(asked: dict[str, Any], tmp_path: Path) -> None:
    names = ["fedavg", "fedprox: mu=0.5"]
    alone = accord.compare(names, seeds=(0, 1), **asked)
    asked["sets"] = [*SETS, f"out={tmp_path / 'together'}"]
    notes = Notes()

    def observers(config: RunConfig) -> list[Observer]:
        return [Breaker(RunError("the disk is full"))] if (config.algorithm.name, config.seed) == ("fedprox", 1) else []

    broken = accord.compare(names, seeds=(0, 1), jobs=2, observers=observers, progress=notes, **asked)
    assert broken.failed == {("fedprox: mu=0.5", 1): "the disk is full"}
    assert sorted(notes.lines) == [
        "1/4 fedavg-0 new", "2/4 fedavg-1 new", "3/4 fedprox,mu=0.5-0 new", "4/4 fedprox,mu=0.5-1 new",
        "fedprox,mu=0.5-1 failed: the disk is full",
    ]  # fmt: skip
    notes.lines.clear()
    again = accord.compare(names, seeds=(0, 1), jobs="auto", progress=notes, **asked)
    assert notes.lines[-1] == "4/4 fedprox,mu=0.5-1 begun"
    assert folders(again) == folders(alone), "however many at a time, stopped or not"
    assert again.metrics == alone.metrics


def test_a_wrong_study_ends_all(asked: dict[str, Any]) -> None:
    def observers(config: RunConfig) -> list[Observer]:
        raise ConfigError("no such log")

    with pytest.raises(ConfigError, match="no such log"):
        accord.compare(["fedavg"], seeds=(0, 1, 2), jobs=2, observers=observers, **asked)


SCRIPT = """
import signal, sys, accord
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
accord.compare(["fedavg"], seeds=(0, 1, 2), jobs=2, sets=[f"out={sys.argv[1]}", "rounds=2000", "data.limit=200",
    "executor=sequential", "checkpoint.every=0", "evaluate.every=2000"])
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_a_study_nobody_stays_at_work(end: signal.Signals, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    study = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], env=environment, stderr=subprocess.DEVNULL)
    patience = time.monotonic() + 60
    while sum(log.stat().st_size > 0 for log in tmp_path.rglob("metrics.jsonl")) < 2 and time.monotonic() < patience:
        time.sleep(0.05)
    study.send_signal(end)
    assert study.wait(30) != 0
    logs = list(tmp_path.rglob("metrics.jsonl"))
    assert len(logs) == 2, "the third had not begun"
    patience = time.monotonic() + 20
    sizes = [-1, -1]
    while sizes != (now := [log.stat().st_size for log in logs]) and time.monotonic() < patience:
        sizes = now
        time.sleep(0.5)
    assert sizes == now, "no more rounds are written"
    assert all(json.loads(log.read_text().splitlines()[0])["round"] == 1 for log in logs)
