"""What can go wrong, by kind. Every message says what was wrong, what is allowed and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AccordError(Exception):
    """Base of all errors Accord raises on purpose; the command line prints them without a traceback."""


class ConfigError(AccordError):
    """A setting is unknown, of the wrong type, out of range, or does not fit the others (exit code 2)."""


class DataError(AccordError):
    """A data file or array cannot be used as it is."""


class CheckpointError(AccordError):
    """A checkpoint is missing, damaged or belongs to another run."""


class RunError(AccordError):
    """A run cannot go on (disk full, folder not writable, too few clients answered)."""


class InUseError(RunError):
    """Another process works in the folder."""


class DivergedError(RunError):
    """Training produced a loss or weight that is not a finite number."""


def nearest(word: str, allowed: Iterable[str]) -> str:
    """A hint such as ` Did you mean 'fedavg'?`, or nothing when no allowed word is close.

    >>> nearest("fedagv", ["fedavg", "scaffold"])
    " Did you mean 'fedavg'?"
    """
    close = difflib.get_close_matches(word[:100], list(allowed), n=1, cutoff=0.5)  # a long one is nobody's slip
    return f" Did you mean {close[0]!r}?" if close else ""
