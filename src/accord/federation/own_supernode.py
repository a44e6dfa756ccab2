"""Flower's SuperNode, looking for messages more often: `python -m accord.federation.own_supernode ...`.

Flower waits 3 s where it finds none, and half a second for an answer to be ready: a node would sleep through most of a
short exchange. A look is one small request.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

LONGEST = 0.2  # seconds between two looks


def main() -> None:
    """Flower's own command, with shorter naps."""
    from flwr.supernode import start_client_internal as inside
    from flwr.supernode.cli import flower_supernode

    if not hasattr(inside, "time"):
        raise SystemExit("this version of Flower waits in another way; Accord knows flwr 1.41")
    naps = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, LONGEST)), time=time.time)
    inside.time = naps  # type: ignore[assignment]
    flower_supernode()


if __name__ == "__main__":
    main()
