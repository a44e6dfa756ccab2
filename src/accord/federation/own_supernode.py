"""Flower's SuperNode, looking for messages sooner: `python -m accord.federation.own_supernode ...`.

Flower looks every 3 s where it finds none, and would sleep through most of a short exchange; every tenth of a second
would be a burden for the server of a hundred nodes. So a node that has just answered looks soon, then less and less
often: it loses at most a fifth of the time it has waited.
"""

from __future__ import annotations

import time

SOONEST = 0.2  # seconds between two looks at the SuperLink, and
HERE = 0.1  # for an answer of our own client app
GROWTH = 1.2  # of the time between two looks, as long as there is nothing
FOR_AN_ANSWER = 1.0  # Flower's naps below this are those until the client app has answered


class Naps:
    """Stands where Flower sleeps."""

    def __init__(self) -> None:
        self.next = SOONEST

    def sleep(self, seconds: float) -> None:
        """Shorter than Flower wanted, and longer each time, until there was work."""
        if seconds < FOR_AN_ANSWER:
            self.next = SOONEST
            time.sleep(min(seconds, HERE))
        else:
            time.sleep(min(seconds, self.next))
            self.next = min(seconds, self.next * GROWTH)


def main() -> None:
    """Flower's own command, with our naps."""
    from flwr.supernode import start_client_internal as inside
    from flwr.supernode.cli import flower_supernode

    if not hasattr(inside, "time"):
        raise SystemExit("this version of Flower waits in another way; Accord knows flwr 1.41")
    inside.time = Naps()
    flower_supernode()


if __name__ == "__main__":
    main()
