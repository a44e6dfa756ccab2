"""Flower's SuperNode, looking for messages sooner: `python -m accord.federation.own_supernode ...`.

Flower looks every 3 s where it finds none, and would sleep through most of a short exchange; every tenth of a second
would be a burden for the server of a hundred nodes. So a node that has just answered looks soon, then less and less
often: it loses at most a fifth of the time it has waited. And its SuperExec is started again if it dies, without which
the node would be connected and mute.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from accord.federation.bell import ringing
from accord.federation.sooner import fetch_sooner

SOONEST = 0.2  # seconds between two looks at the SuperLink, and
HERE = 0.1  # for an answer of our own client app
GROWTH = 1.2  # of the time between two looks, as long as there is nothing
FOR_AN_ANSWER = 1.0  # Flower's naps below this are those until the client app has answered
REPLACED = ("time", "subprocess", "_pull_and_store_message")
REST = 5.0  # seconds at least from one start of the SuperExec to the next


class Naps:
    """Stands where Flower sleeps; `look` is called every time."""

    def __init__(self, look: Callable[[], None] = lambda: None) -> None:
        self.next, self.look = SOONEST, look

    def sleep(self, seconds: float) -> None:
        """Shorter than Flower wanted, and longer each time, until there was work."""
        self.look()
        if seconds < FOR_AN_ANSWER:
            self.next = SOONEST
            time.sleep(min(seconds, HERE))
        else:
            time.sleep(min(seconds, self.next))
            self.next = min(seconds, self.next * GROWTH)


class Keeper:
    """Stands where Flower starts its SuperExec."""

    def __init__(self) -> None:
        self.command: Sequence[str] = ()
        self.process: subprocess.Popen[bytes] | None = None
        self.began = 0.0

    def Popen(self, command: Sequence[str]) -> None:  # noqa: N802 - as Flower calls it
        """Start it, at the other end of the bell."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        self.command, self.began = command, time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603
        assert self.process.stdin is not None
        os.set_blocking(self.process.stdin.fileno(), False)

    def ring(self) -> None:
        """There is a message."""
        if self.process is not None and self.process.stdin is not None:
            with suppress(OSError):  # it has died, or has not looked for very long: it will
                os.write(self.process.stdin.fileno(), b"\n")

    def look(self) -> None:
        """Start it again if it has died."""
        if self.process is None or self.process.poll() is None or time.monotonic() - self.began < REST:
            return
        sys.stderr.write(f"the SuperExec has ended with code {self.process.returncode}; it is started again\n")
        self.Popen(self.command)


def main() -> None:
    """Flower's own command, with our naps and our keeper."""
    from flwr.supernode import start_client_internal as inside
    from flwr.supernode.cli import flower_supernode

    if missing := [name for name in REPLACED if not hasattr(inside, name)]:
        raise SystemExit(f"this version of Flower works in another way ({', '.join(missing)}); Accord knows flwr 1.41")
    fetch_sooner(inside)
    keeper = Keeper()
    pull = ringing(inside._pull_and_store_message, keeper.ring)
    vars(inside).update(zip(REPLACED, (Naps(keeper.look), keeper, pull), strict=True))
    flower_supernode()


if __name__ == "__main__":
    main()
