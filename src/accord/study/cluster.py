"""Work side by side on a Ray cluster: as in `pool`, but a piece's process may be on any machine.

Pieces are pickled, by Ray and for Ray's own processes, so a method defined in a notebook works; modules imported by
name (`--import`) are imported again. What a piece writes must be found here, so the machines share the folder it writes
to. The piece of a machine that was lost is begun again elsewhere, where a run goes on from its last checkpoint.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from accord.errors import AccordError, ConfigError, RunError
from accord.executors.processes import TRIES, cores
from accord.executors.ray import session
from accord.settings import plugins
from accord.study.pool import AUTO, GRACE, Failure, Listener, Work, carried_out, error_of, how_many

PAUSE = 0.2  # seconds between two looks at what the pieces tell


def check(executors: Iterable[str]) -> None:
    """Refuse what cannot work before any run begins."""
    if session.missing():
        raise ConfigError("runs on Ray need Ray: pip install 'accord-fl[ray]'")
    if "ray" in executors:
        raise ConfigError(
            "executor = 'ray' within runs on Ray: a run would wait for cores that runs like it hold. Use another "
            "executor, or leave out --on ray (in Python on='ray')"
        )


def side_by_side(works: Sequence[Work], jobs: int | str, listener: Listener, *, on_gpu: bool = False) -> None:
    """Carry out all pieces, at most `jobs` at a time, in their order; `auto`: one per GPU, or core, of the cluster.

    A piece that fails costs no other. Ctrl-C, or an exception of the listener, ends all that are under way.
    """
    most = how_many(jobs, len(works), on_gpu)
    with session.joined(cores() if jobs == AUTO else most):
        devices = int(session.resources().get("GPU" if on_gpu else "CPU", 0))
        if not devices:
            raise RunError(f"no machine of the Ray cluster has a {'GPU' if on_gpu else 'core'} for a run")
        if jobs == AUTO:
            most = devices
        # Where more runs than GPUs are asked for, they share them.
        needs = {"num_cpus": 0.0, "num_gpus": 1 / -(-most // devices)} if on_gpu else {"num_cpus": 1.0}
        _Study(works, most, listener, needs).carry_out()


class _Study:
    """Which pieces are under way."""

    def __init__(self, works: Sequence[Work], most: int, listener: Listener, needs: dict[str, float]) -> None:
        import ray
        from ray.util.queue import Queue

        remote: Any = ray.remote
        self._start = remote(max_calls=1, max_retries=0, scheduling_strategy="SPREAD", **needs)(_live).remote
        self._works = ray.put(list(works))  # all at once: what they share is sent once
        self._ear: Any = Queue(actor_options={"num_cpus": 0})
        self._most, self._listener = most, listener
        self._waiting = list(range(len(works)))[::-1]
        self._running: dict[Any, int] = {}  # places by Ray's references
        self._begun: Counter[int] = Counter()

    def carry_out(self) -> None:
        import ray

        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < self._most:
                    self._begin(self._waiting.pop())
                ended, _ = ray.wait(list(self._running), timeout=PAUSE)
                self._hear()
                for reference in ended:
                    self._note(self._running.pop(reference), reference)
        finally:
            self._stop()

    def _begin(self, place: int) -> None:
        if not self._begun[place]:
            self._listener.started(place)
        self._begun[place] += 1
        reference = self._start(self._works, place, self._ear, os.getcwd(), tuple(plugins.IMPORTED))
        self._running[reference] = place

    def _hear(self) -> None:
        """What was told so far."""
        if count := self._ear.qsize():
            for place, value in self._ear.get_nowait_batch(count):
                self._listener.told(place, value)

    def _note(self, place: int, reference: Any) -> None:
        """A piece came to its end, or its process did."""
        import ray

        error: AccordError | None
        try:
            error = error_of(ray.get(reference))
        except ray.exceptions.RayTaskError as failure:
            error = RunError(f"Ray cannot carry it out: {failure}")
        except ray.exceptions.RayError as lost:
            if self._begun[place] < TRIES:
                self._waiting.append(place)
                return
            error = RunError(f"its process was lost {TRIES} times: {lost}")
        self._listener.ended(place, error)

    def _stop(self) -> None:
        """Ask those under way to stop as on Ctrl-C, and see to it."""
        import ray

        for reference in self._running:
            ray.cancel(reference)
        if self._running:
            _, busy = ray.wait(list(self._running), num_returns=len(self._running), timeout=GRACE)
            for reference in busy:
                ray.cancel(reference, force=True)
        for place in self._running.values():
            self._listener.stopped(place)
        self._ear.shutdown()


def _live(works: Sequence[Work], place: int, ear: Any, folder: str, modules: Sequence[str]) -> Failure | None:
    """A piece, in its process."""
    try:
        os.chdir(folder)
    except OSError:
        why = f"{socket.gethostname()} has no folder {folder}: start the study in one that all machines share"
        return "RunError", why

    def tell(value: Any) -> None:
        try:
            ear.put((place, value))
        except Exception:
            raise KeyboardInterrupt from None  # nobody listens any more

    return carried_out(works[place], tell, modules, share=1)
