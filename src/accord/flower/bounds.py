"""No answer is taken into memory that is larger than allowed: its pieces are counted while they arrive.

Flower fetches an answer whole before an app sees it. A node that sends gigabytes would fill the server's memory first
and be dropped then. So the fetching is stopped where the pieces come to more than an answer may have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from accord.errors import ConfigError

LARGER = "the answer is larger than the bytes allowed"
BESIDE = 1 << 24  # bytes of header and metrics


def bound_pulls(largest: int) -> None:
    """From now on, in this process: answers of more than `largest` bytes are given up while they arrive."""
    from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, pull_objects
    from flwr.superlink.grid import http_grid

    if not hasattr(http_grid, "pull_objects"):
        raise ConfigError("this version of Flower fetches answers in another way; Accord knows flwr 1.41")

    def counted(object_ids: list[str], pull_object_fn: Callable[[str], bytes], **more: Any) -> dict[str, bytes]:
        taken, lock = [0], threading.Lock()

        def pull(object_id: str) -> bytes:
            if taken[0] > largest + BESIDE:
                raise ObjectPullError(object_id, f"{LARGER}: {largest}")
            data = pull_object_fn(object_id)
            with lock:
                taken[0] += len(data)
            if taken[0] > largest + BESIDE:
                raise ObjectPullError(object_id, f"{LARGER}: {largest}")
            return data

        return pull_objects(object_ids, pull, **more)

    http_grid.pull_objects = counted
