"""Memory that a training step frees and the next one needs again stays with the process."""

from __future__ import annotations

import ctypes

KEPT = 1 << 28  # bytes, at most
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
LARGEST = 1 << 25  # bytes of one block that glibc agrees to manage itself


def keep_freed_memory() -> None:
    """glibc gives large freed blocks back to the system, which then clears every page again, in every step.

    Elsewhere nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, KEPT)
        mallopt(M_MMAP_THRESHOLD, LARGEST)
