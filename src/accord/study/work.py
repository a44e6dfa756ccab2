"""What is left to do of one entry of a study: a function of its own, so that a pool of processes can call it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from accord.config import RunConfig
from accord.errors import AccordError
from accord.observe import Observer, observers_for
from accord.study.entry import Entry
from accord.study.inputs import Inputs

Observers = Callable[[RunConfig], Iterable[Observer]]


def carry_out(entry: Entry, inputs: Inputs | None = None, observers: Observers = observers_for) -> None:
    """Start the run or go on with it; nothing if it is finished. Its observers are made here, and closed."""
    from accord.engine.run import resume, run

    if entry.finished:
        return
    given = inputs or Inputs()
    watching = list(observers(entry.config))
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
