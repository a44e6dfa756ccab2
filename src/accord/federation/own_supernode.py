"""Flower's SuperNode, looking for messages sooner: `python -m accord.federation.own_supernode ...`.

Flower looks every 3 s where it finds none, and would sleep through most of a short exchange; every tenth of a second
would be a burden for the server of a hundred nodes. So a node that has just answered looks soon, then less and less
often: it loses at most a fifth of the time it has waited. And its SuperExec is started again if it dies, without which
the node would be connected and mute.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from accord.federation.sooner import fetch_sooner

SOONEST = 0.2  # seconds between two looks at the SuperLink, and
HERE = 0.1  # for an answer of our own client app
GROWTH = 1.2  # of the time between two looks, as long as there is nothing
FOR_AN_ANSWER = 1.0  # Flower's naps below this are those until the client app has answered
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
        """Start it."""
        self.command, self.began = command, time.monotonic()
        self.process = subprocess.Popen(command)  # noqa: S603

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

    if not hasattr(inside, "time") or not hasattr(inside, "subprocess"):
        raise SystemExit("this version of Flower waits in another way; Accord knows flwr 1.41")
    fetch_sooner(inside)
    keeper = Keeper()
    vars(inside).update(time=Naps(keeper.look), subprocess=keeper)
    flower_supernode()


if __name__ == "__main__":
    main()
