"""What is left to do of the entries of a study: one in this process, several side by side in their own, or on Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from accord.config import RunConfig
from accord.errors import AccordError, CheckpointError, ConfigError, RunError
from accord.frames import scalars
from accord.observe import Observer
from accord.study import cluster
from accord.study.entry import Entry
from accord.study.inputs import Inputs
from accord.study.pool import Listener, Tell, how_many, side_by_side
from accord.study.progress import Progress
from accord.trackers import observers_for

Where = Literal["here", "ray"]
Observers = Callable[[RunConfig], Iterable[Observer]]


def carry_out(entry: Entry, inputs: Inputs | None = None, observers: Observers = observers_for) -> None:
    """Start the run or go on with it; nothing if it is finished. Its observers are made here, and closed."""
    from accord.engine.run import resume, run

    if entry.finished:
        return
    given = inputs or Inputs()
    watching = [*observers(entry.config), *entry.watchers()]
    try:
        if entry.begun:
            resume(entry.folder, data=given.data, model=given.model, observers=watching)
        else:
            run(entry.config, data=given.data, model=given.model, observers=watching)
    except AccordError as error:
        if not entry.noted(error):
            raise
    finally:
        for observer in watching:
            observer.close()
    entry.tidy()


def carry_out_all(
    entries: Sequence[Entry],
    inputs: Inputs,
    observers: Observers,
    jobs: int | str,
    progress: Progress,
    done: int = 0,
    total: int = 0,
    on: Where = "here",
) -> dict[int, str]:
    """All entries, `jobs` at a time; why some failed, by their place. One that diverges must not cost the others.

    `done` were before them, and there are `total` in all.
    """
    left = [entry for entry in entries if not entry.finished]
    on_gpu = bool(left) and _on_gpu(left[0].config)
    count = how_many(jobs, len(left), on_gpu)
    reporter = _Reporter(entries, progress, done, total or len(entries))
    if count == 1 and on == "here":
        for place, entry in enumerate(entries):
            reporter.started(place)
            try:
                carry_out(entry, inputs, observers)
            except AccordError as error:
                reporter.ended(place, error)
            else:
                reporter.ended(place, None)
        return reporter.failed
    for place, entry in enumerate(entries):
        if entry.finished:
            reporter.started(place)
    reporter.places = [place for place, entry in enumerate(entries) if not entry.finished]
    works = [partial(relayed, entry, inputs, observers) for entry in left]
    if on == "here":
        side_by_side(works, count, reporter, on_gpu=on_gpu)
    elif works:
        cluster.side_by_side(works, jobs, reporter, on_gpu=on_gpu)
        for place, entry in enumerate(entries):
            if not entry.finished and place not in reporter.failed:
                reporter.lost(place, f"{entry.folder} is not on this machine: all machines must share it, see out")
    return reporter.failed


def check_where(on: str, configs: Iterable[RunConfig]) -> None:
    """Refuse a place where the runs cannot be."""
    if on not in get_args(Where):
        raise ConfigError(f"on: {on!r} is unknown. Allowed: {', '.join(get_args(Where))}.")
    if on == "ray":
        cluster.check({config.executor for config in configs})


class _Reporter(Listener):
    """Tells a study's progress what becomes of its entries."""

    def __init__(self, entries: Sequence[Entry], progress: Progress, done: int, total: int) -> None:
        self.entries, self.progress, self.done, self.total = entries, progress, done, total
        self.places = list(range(len(entries)))  # of the pieces, among the entries
        self.failed: dict[int, str] = {}

    def started(self, place: int) -> None:
        at = self.places[place]
        self.progress.started(self.entries[at], self.done + at + 1, self.total)

    def told(self, place: int, value: Any) -> None:
        self.progress.advanced(self.entries[self.places[place]], value["round"], value["record"])

    def ended(self, place: int, error: AccordError | None) -> None:
        at = self.places[place]
        if error is None:
            self.progress.ended(self.entries[at])
            return
        if not isinstance(error, RunError | CheckpointError):
            raise error  # the study itself is wrong
        self.lost(at, str(error))

    def lost(self, at: int, reason: str) -> None:
        """The entry at that place failed."""
        self.failed[at] = reason
        self.progress.run_failed(self.entries[at], reason)


def relayed(entry: Entry, inputs: Inputs, observers: Observers, tell: Tell) -> None:
    """One entry in a process of its own, which tells how far it is."""
    carry_out(entry, inputs, partial(_watched, observers, tell))


def _watched(observers: Observers, tell: Tell, config: RunConfig) -> list[Observer]:
    return [*observers(config), _Relay(tell)]


class _Relay(Observer):
    """Tells the process that started this one how far a run is."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def started(self, config: RunConfig, folder: Path, total_rounds: int, first_round: int) -> None:
        self._tell({"round": first_round, "record": {}})

    def round_ended(self, round: int, record: Mapping[str, Any]) -> None:
        self._tell({"round": round, "record": dict(scalars(record))})


def _on_gpu(config: RunConfig) -> bool:
    import torch

    return config.device != "cpu" and torch.cuda.is_available()
