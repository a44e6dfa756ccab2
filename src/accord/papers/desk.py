"""Carrying out runs: several at a time, each in a process of its own, until nothing is left or the time is over.

A run that is told to end stops as on Ctrl-C; the same call goes on from its last checkpoint.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import torch

from accord.errors import AccordError, DivergedError, InUseError
from accord.papers.turns import note
from accord.papers.wanted import Wanted, kept
from accord.study.entry import Entry
from accord.study.inputs import Inputs
from accord.study.pool import Listener, Tell, side_by_side
from accord.study.work import carry_out, relayed
from accord.trackers import observers_for

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
            error: AccordError | None = None
            try:
                carry_out(run.entry(self._folder))
            except AccordError as broken:
                error = broken
            self._done(run, *fate(error))


class Desk(Listener):
    """In processes of their own, `jobs` at a time; it notes when each was at work.

    What a run has come to is noted while it is under way too: a machine may be gone before any run ends.
    """

    pause = 60.0

    def __init__(self, folder: Path, jobs: int, done: Done, say: Say) -> None:
        self._folder, self._jobs, self._done, self._say = folder, jobs, done, say
        self._runs: Sequence[tuple[Wanted, Entry]] = ()

    def work(self, runs: Sequence[Wanted], until: float) -> None:
        """Those at work are told to end early enough to be gone in time."""
        self._runs = [(run, run.entry(self._folder)) for run in runs]
        works = [partial(_work, entry) for _, entry in self._runs]
        # Where there is a GPU this process has asked for its name, and cannot be forked even for runs on the CPU.
        side_by_side(works, self._jobs, self, on_gpu=torch.cuda.is_available(), until=until)

    def started(self, place: int) -> None:
        run, entry = self._runs[place]
        note(self._folder, entry.folder.name, began=True)
        begun = "goes on" if (entry.folder / "checkpoint").is_dir() else "starts again"
        before = kept(entry)
        said = f" (with {', '.join(before)}, as it was begun)" if before else ""
        self._say(f"{begun if entry.begun else 'started'}: {run.label}{said}")

    def ended(self, place: int, error: AccordError | None) -> None:
        if isinstance(error, InUseError):  # its record is theirs to write
            run, entry = self._runs[place]
            note(self._folder, entry.folder.name, began=False)
            self._say(f"at work in another process: {run.label}")
            return
        diverged, failed = fate(error)
        seen = f"; see {log_of(self._runs[place][1])}" if failed else ""
        self._gone(place, "diverged" if diverged else "failed" if failed else "ended", diverged, failed + seen)

    def stopped(self, place: int) -> None:
        self._gone(place, "stopped")

    def under_way(self, places: Sequence[int]) -> None:
        for run, entry in (self._runs[place] for place in places):
            note(self._folder, entry.folder.name, began=True)  # its share of the device until now
            self._done(run, "", "")

    def _gone(self, place: int, how: str, diverged: str = "", failed: str = "") -> None:
        run, entry = self._runs[place]
        note(self._folder, entry.folder.name, began=False)
        self._done(run, diverged, failed)
        self._say(f"{how}: {run.label}")


def fate(error: AccordError | None) -> tuple[str, str]:
    """Why a run's training diverged, which is a result, and why it failed, which is none; empty: it did not."""
    why = "" if error is None else str(error)
    return (why, "") if isinstance(error, DivergedError) else ("", why)


def log_of(entry: Entry) -> Path:
    """What a run's process says, beside the run's folder."""
    return entry.folder.with_name(entry.folder.name + ".log")


def _work(entry: Entry, tell: Tell) -> None:
    """One run, in its process."""
    log_of(entry).parent.mkdir(parents=True, exist_ok=True)
    log = log_of(entry).open("a", encoding="utf-8", buffering=1)  # open until the process ends
    for stream in (1, 2):  # also what is not written by Python
        os.dup2(log.fileno(), stream)
    sys.stdout = sys.stderr = log
    try:
        relayed(entry, Inputs(), observers_for, tell)
    except Exception:
        traceback.print_exc()
        raise


def start_sharing() -> str:
    """MPS lets the runs' kernels share a GPU instead of taking turns; without it they still run."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        return "no MPS here"
    done = subprocess.run([control, "-d"], capture_output=True, text=True)  # noqa: S603 - a fixed command
    said = (done.stdout + done.stderr).strip()
    if "already running" in said:
        return "MPS is at work already"
    return "MPS started" if done.returncode == 0 else f"no MPS: {said}"
