"""Work side by side, each piece in a process of its own: the runs of a study, or whatever else takes long.

A piece is a callable. It is given `tell`, which sends a plain value (JSON) to the process that started it. On a CPU the
process is forked: the piece, its data and everything registered are the parent's memory, nothing is pickled, and a
method defined in a notebook works. A forked process cannot use a GPU, so there a server that never touched one forks
(`forkserver`): the piece has to be picklable, and what was imported by name (`--import`) is imported again.

A process ends with the one that started it, even if that one is killed: when nobody listens, it stops as on Ctrl-C.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

import torch

from accord import errors
from accord.errors import AccordError, ConfigError, RunError
from accord.executors.processes import can_fork, cores, share_cores
from accord.settings import import_modules, plugins
from accord.study.checks import whole

Tell = Callable[[Any], None]
Work = Callable[[Tell], None]
Failure = tuple[str, str]  # an error's kind and text

AUTO = "auto"
ON_GPU = 8  # processes that share one GPU, where nobody says how many
GRACE = 20.0  # seconds a process has to end by itself
AGAIN = 1.0  # seconds between two signals to one that has not heard the first
LONGEST = 86400.0  # seconds at a time: systems count a wait in milliseconds, with 32 bits


class Listener:
    """What happens to the pieces, by their place in the list; override what is of interest."""

    pause = math.inf  # seconds between two times it is told who is under way

    def under_way(self, places: Sequence[int]) -> None:
        """They have been at work for another while. What is raised here ends them."""

    def started(self, place: int) -> None:
        """Its process begins."""

    def told(self, place: int, value: Any) -> None:
        """It sent a value."""

    def ended(self, place: int, error: AccordError | None) -> None:
        """It came to its end, or failed with `error`. What is raised here ends all others."""

    def stopped(self, place: int) -> None:
        """It was under way when all had to end, and has."""


def how_many(jobs: int | str, works: int, on_gpu: bool) -> int:
    """How many at a time: as asked; `auto`: one per core, on a GPU a few."""
    if jobs == AUTO:
        return max(min(works, cores(), ON_GPU if on_gpu else works), 1)
    if isinstance(jobs, str) or whole(jobs, "jobs") < 1:
        raise ConfigError(f"jobs: must be at least 1, or {AUTO!r}, not {jobs!r}")
    return jobs


def side_by_side(
    works: Sequence[Work], jobs: int, listener: Listener, *, on_gpu: bool = False, until: float = math.inf
) -> None:
    """Carry out all pieces, at most `jobs` at a time, in their order; each has its share of the cores.

    A piece that fails costs no other. Ctrl-C, or an exception of the listener, ends all that are under way. At `until`,
    a time of the monotonic clock, nobody is at work any more: those under way are asked to stop some time before it.
    """
    last_call = until - min(GRACE, (until - time.monotonic()) / 10)
    context: Any = multiprocessing.get_context(_method(on_gpu))
    share = max(cores() // max(min(jobs, len(works)), 1), 1)
    waiting = list(range(len(works)))[::-1]
    running: dict[Any, tuple[int, BaseProcess]] = {}
    fates: dict[int, AccordError | None] = {}
    look = time.monotonic() + listener.pause
    try:
        while (waiting or running) and time.monotonic() < last_call:
            while waiting and len(running) < jobs:
                place = waiting.pop()
                listener.started(place)
                ours, process = _start(context, works[place], share, list(running))
                running[ours] = place, process
            if time.monotonic() >= look:
                listener.under_way([place for place, _ in running.values()])
                look = time.monotonic() + listener.pause
            for end in wait(list(running), min(max(min(last_call, look) - time.monotonic(), 0), LONGEST)):
                pipe: Any = end
                place, process = running[pipe]
                try:
                    kind, value = json.loads(pipe.recv_bytes())
                except (EOFError, OSError):
                    del running[pipe]
                    pipe.close()
                    process.join()
                    listener.ended(place, fates.get(place, _epitaph(process.exitcode)))
                    continue
                if kind == "told":
                    listener.told(place, value)
                else:
                    fates[place] = error_of(value)
    finally:
        _end([process for _, process in running.values()], until)
        for place, _ in running.values():
            listener.stopped(place)


def _method(on_gpu: bool) -> str:
    if on_gpu:
        multiprocessing.set_forkserver_preload(["accord.engine.run", "accord.study.work"])
        return "forkserver" if can_fork() else "spawn"
    return "fork" if can_fork() else "spawn"


def _start(context: Any, work: Work, share: int, others: Sequence[Connection]) -> tuple[Connection, BaseProcess]:
    ours, theirs = context.Pipe(duplex=False)
    # A forked process inherits the listening ends, and must close them to notice when nobody listens any more.
    inherited = [ours, *others] if context.get_start_method() == "fork" else []
    try:
        process = context.Process(target=_live, args=(theirs, inherited, work, tuple(plugins.IMPORTED), share))
        with warnings.catch_warnings():
            # Newer Pythons warn that a forked child may inherit a held lock; the child runs torch on one thread.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
    except OSError as error:
        raise RunError(f"cannot start a process: {error.strerror or error}; use fewer jobs") from error
    finally:
        theirs.close()
    return ours, process


def _live(pipe: Connection, inherited: Sequence[Connection], work: Work, modules: Sequence[str], share: int) -> None:
    """A piece, in its process."""

    def send(kind: str, value: Any) -> None:
        try:
            pipe.send_bytes(json.dumps([kind, value]).encode())
        except OSError:
            raise KeyboardInterrupt from None  # nobody listens any more

    heard: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    try:
        for end in inherited:
            end.close()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, stop)  # ends as well as Ctrl-C does
        if hasattr(select, "poll"):  # where there is none, it notices at the next thing it tells
            threading.Thread(target=_end_unheard, args=(pipe, heard), daemon=True).start()
        send("ended", carried_out(work, lambda value: send("told", value), modules, share))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    finally:
        _settle()


def _settle() -> None:
    """Wait for what this process still has under way on a GPU.

    Under MPS one that leaves before that can break all others on the same GPU.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        with suppress(RuntimeError):  # a GPU that failed has nothing under way
            torch.cuda.synchronize()


def _end_unheard(pipe: Connection, heard: Sequence[int]) -> None:
    """Wait until nobody listens any more, which may be never, then end what the main thread does.

    A signal in the last moment before a long wait does not end that wait: it is sent until it has been heard.
    """
    end = select.poll()
    end.register(pipe.fileno(), 0)  # an error is always told: the other end is closed
    end.poll()
    while not heard:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        time.sleep(AGAIN)


def carried_out(work: Work, tell: Tell, modules: Sequence[str], share: int) -> Failure | None:
    """A piece in a process of its own, with its share of the cores; how it failed."""
    try:
        torch.set_num_threads(1)  # a pool of threads does not outlive a fork, and the cores are the others'
        share_cores(share)
        import_modules(modules)
        work(tell)
    except AccordError as error:
        return type(error).__name__, str(error)
    except Exception as error:
        if os.environ.get("ACCORD_DEBUG") == "1":
            traceback.print_exc()
        return "RunError", f"{type(error).__name__}: {error}"
    return None


def error_of(failure: Failure | None) -> AccordError | None:
    """The error of a piece, of the kind it was there."""
    if failure is None:
        return None
    kind, text = failure
    found: type[AccordError] = getattr(errors, kind, RunError)
    return found(text)


def _epitaph(code: int | None) -> RunError:
    by_signal = code is not None and code < 0
    return RunError(
        f"its process {'was killed' if by_signal else 'ended'} (exit code {code}): if memory ran out (exit code -9), "
        "use fewer jobs or give the machine more of it"
    )


def _end(processes: Sequence[BaseProcess], until: float) -> None:
    """Ask them to stop, and see to it."""
    begin = time.monotonic()
    by = max(min(until, begin + GRACE), begin + 1)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(max(by - time.monotonic(), 0))
        if process.is_alive():
            process.kill()
            process.join()
