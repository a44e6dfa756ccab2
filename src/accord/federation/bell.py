"""A node's SuperNode rings when there is a message; its SuperExec looks when it rings, and seldom otherwise.

Flower's SuperExec asks its SuperNode several times a second whether there is work, at the cost of two processes'
milliseconds each time. Here it waits at its standard input.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from typing import Any

SELDOM = 2.0  # seconds after which it looks though nobody rang


class Waiting:
    """Stands where Flower's SuperExec sleeps."""

    def __init__(self, bell: int | None = None) -> None:
        self.bell: int | None = sys.stdin.fileno() if bell is None else bell

    def sleep(self, seconds: float) -> None:
        """Until it rings; without a bell as long as Flower wants."""
        if self.bell is None:
            time.sleep(seconds)
        elif select.select([self.bell], [], [], SELDOM)[0] and not os.read(self.bell, 4096):
            self.bell = None  # nobody will ring any more


def ringing(pull: Callable[..., int | None], ring: Callable[[], None]) -> Callable[..., int | None]:
    """Flower's way to fetch a message, ringing when there was one."""

    def pulled(*given: Any, **more: Any) -> int | None:
        run = pull(*given, **more)
        if run is not None:
            ring()
        return run

    return pulled
