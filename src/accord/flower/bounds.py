"""No answer is taken into memory that is larger than allowed: its pieces are counted while they arrive.

Flower fetches an answer whole before an app sees it. A node that sends gigabytes would fill the server's memory first
and be dropped then. So the fetching is stopped where the pieces come to more than an answer may have; and as Flower
sends equal pieces once, it is also counted what they come to when they are put together.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Array

from accord.errors import ConfigError

LARGER = "the answer is larger than the bytes allowed"
SOON = 0.2  # seconds; the time doubles with every further look
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

        # Pieces that are still on their way are looked for again soon: Flower would wait a second.
        found: dict[str, bytes] = pull_objects(object_ids, pull, **{"initial_backoff": SOON, **more})
        if unfolded(found) > largest + BESIDE:
            raise ObjectPullError(object_ids[0], f"{LARGER}: {largest}")
        return found

    http_grid.pull_objects = counted


def unfolded(found: Mapping[str, bytes]) -> int:
    """Bytes of all arrays once their pieces are put together; what is no array, or broken, is left to Flower."""
    from flwr.supercore.inflatable import inflatable_object as inside

    total = 0
    for content in found.values():
        try:
            if inside.get_object_type_from_object_content(content) != "Array":
                continue
            pieces = inside.get_object_children_ids_from_object_content(content)
            places = json.loads(inside.get_object_body(content, Array))["arraychunk_ids"]
            total += sum(len(found[pieces[place]]) for place in places)
        except (ValueError, KeyError, IndexError, TypeError):
            continue
    return total
