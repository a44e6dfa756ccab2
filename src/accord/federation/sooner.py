"""Pieces of a message that are on their way are looked for again soon: Flower waits a second before it looks again.

Whoever sends a message announces it first and sends its pieces then, so those who fetch it are often there too early.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType

FIRST = 0.2  # seconds until the second look; the time doubles with every further one


def fetch_sooner(module: ModuleType) -> None:
    """From now on, where this module of Flower's fetches messages."""
    theirs = getattr(module, "pull_objects", None)
    if theirs is None:
        raise SystemExit("this version of Flower fetches messages in another way; Accord knows flwr 1.41")
    vars(module)["pull_objects"] = partial(theirs, initial_backoff=FIRST)
