"""Carrying out runs: several at a time, each in a process of its own, until nothing is left or the time is over.

A run that is told to end stops as on Ctrl-C; the same call goes on from its last checkpoint. `python -m
accord.papers.desk FOLDER` is one run's own process: its configuration lies in the file beside the folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from accord.config import load_config, to_toml
from accord.engine.files import write_atomic
from accord.errors import AccordError, DivergedError
from accord.papers.slot import Slot
from accord.papers.turns import note
from accord.papers.wanted import Wanted

GRACE = 15.0  # seconds a run has to end after it is told to
DIVERGED = 3  # exit code of a run whose training diverged: a result, not a failure

Say = Callable[[str], None]
Done = Callable[[Wanted, str, str], None]  # the run; why its training diverged; why it failed


class Worker(Protocol):
    """Whoever carries out runs."""

    def work(self, runs: Sequence[Wanted], until: float) -> None:
        """All of them, until a time of the monotonic clock."""


class Here:
    """In this process, one after another: for runs that take less time than a process needs to start."""

    def __init__(self, folder: Path, done: Done) -> None:
        self._folder, self._done = folder, done

    def work(self, runs: Sequence[Wanted], until: float) -> None:
        """The time is looked at between two runs."""
        for run in runs:
            if time.monotonic() >= until:
                return
            diverged = failed = ""
            try:
                run.slot(self._folder).carry_out()
            except DivergedError as error:
                diverged = str(error)
            except AccordError as error:
                failed = str(error)
            self._done(run, diverged, failed)


class Desk:
    """Which runs are at work, and which come next."""

    def __init__(self, folder: Path, jobs: int, done: Done, say: Say) -> None:
        self._folder, self._jobs, self._done, self._say = folder, jobs, done, say
        self._at_work: dict[str, tuple[Wanted, subprocess.Popen[bytes]]] = {}

    def work(self, runs: Sequence[Wanted], until: float) -> None:
        """Those at work are told to end early enough to be gone in time."""
        waiting = list(runs)
        end = until - min(GRACE, (until - time.monotonic()) / 10)
        try:
            while (waiting or self._at_work) and time.monotonic() < end:
                self._look()
                while waiting and len(self._at_work) < self._jobs:
                    self._start(waiting.pop(0))
                time.sleep(0.1)
            self._look()
        finally:
            self._stop(until)

    def _start(self, run: Wanted) -> None:
        slot = run.slot(self._folder)
        beside(slot.folder, ".toml").parent.mkdir(parents=True, exist_ok=True)
        write_atomic(beside(slot.folder, ".toml"), to_toml(slot.config))
        with beside(slot.folder, ".log").open("ab") as log:
            command = [sys.executable, "-m", "accord.papers.desk", str(slot.folder)]
            process = subprocess.Popen(command, stdout=log, stderr=log, env=surroundings(self._jobs))  # noqa: S603
        self._at_work[run.label] = (run, process)
        note(self._folder, slot.folder.name, began=True)
        self._say(f"{'goes on' if slot.begun else 'started'}: {run.label}")

    def _look(self) -> None:
        """Take note of those that have ended."""
        for label, (run, process) in list(self._at_work.items()):
            code = process.poll()
            if code is not None:
                del self._at_work[label]
                note(self._folder, run.slot(self._folder).folder.name, began=False)
                why = "" if code == 0 else last_words(beside(run.slot(self._folder).folder, ".log"), code)
                self._done(run, why if code == DIVERGED else "", "" if code in (0, DIVERGED) else why)
                self._say(f"{'ended' if code == 0 else 'diverged' if code == DIVERGED else 'failed'}: {label}")

    def _stop(self, until: float) -> None:
        """Tell everyone, wait a little, then insist."""
        for _, process in self._at_work.values():
            process.terminate()
        for label, (run, process) in self._at_work.items():
            try:
                process.wait(max(until - time.monotonic(), 1.0) if until < float("inf") else GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            note(self._folder, run.slot(self._folder).folder.name, began=False)
            self._done(run, "", "")
            self._say(f"stopped: {label}")
        self._at_work.clear()


def beside(folder: Path, ending: str) -> Path:
    """The file beside a run's folder."""
    return folder.with_name(folder.name + ending)


def surroundings(jobs: int) -> Mapping[str, str]:
    """Of a run's process: these sources, and one core where several share the machine."""
    sources = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join([sources, *filter(None, [os.environ.get("PYTHONPATH")])])
    threads = {"OMP_NUM_THREADS": "1"} if jobs > 1 and "OMP_NUM_THREADS" not in os.environ else {}
    return {**os.environ, **threads, "PYTHONPATH": paths}


def last_words(log: Path, code: int) -> str:
    """The last line of what a process said, or how it ended."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.is_file() else []
    return lines[-1] if lines and code > 0 else f"its process ended with {code}; see {log}"


def start_sharing() -> str:
    """MPS lets the runs' kernels share a GPU instead of taking turns; without it they still run."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        return "no MPS here"
    done = subprocess.run([control, "-d"], capture_output=True, text=True)  # noqa: S603 - a fixed command
    return "MPS started" if done.returncode == 0 else f"no MPS: {(done.stdout + done.stderr).strip()}"


def main(folder: Path) -> int:
    """This process is one run's own: start it, or go on with it."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    begun = folder / "config.toml"
    try:
        Slot(load_config(begun if begun.is_file() else beside(folder, ".toml"))).carry_out()
    except AccordError as error:
        sys.stderr.write(f"{error}\n")
        return DIVERGED if isinstance(error, DivergedError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGTERM
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
