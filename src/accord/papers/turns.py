"""Who was at work when: a line for every start and end in the folder of the runs, and from it each run's share of the
device. The time between two events belongs in equal parts to those at work; several desks may write at once. What a
desk that was killed had under way ends with its last line.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from accord.wire.lines import lines

FILE = "turns.jsonl"


def note(runs: Path, name: str, began: bool) -> None:
    """A run starts or ends now."""
    line = {"at": time.time(), "run": name, "began": began, "desk": os.getpid()}
    runs.mkdir(parents=True, exist_ok=True)
    with (runs / FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def shares(runs: Path) -> dict[str, float]:
    """Seconds of the device, by run."""
    if not (runs / FILE).is_file():
        return {}
    with open(runs / FILE, "rb") as file:
        events = [line.record for line in lines(file) if line.record is not None]
    events.sort(key=lambda event: event["at"])
    last = {event.get("desk"): place for place, event in enumerate(events)}
    found: dict[str, float] = {}
    at_work: set[tuple[int | None, str]] = set()
    before = 0.0
    for place, event in enumerate(events):
        for _, name in at_work:
            found[name] = found.get(name, 0.0) + (event["at"] - before) / len(at_work)
        before, desk = event["at"], event.get("desk")
        (at_work.add if event["began"] else at_work.discard)((desk, event["run"]))
        if last[desk] == place and desk is not None and not _alive(desk):
            at_work = {one for one in at_work if one[0] != desk}
    return found


def _alive(process: int) -> bool:
    """Whether there is such a process; where that cannot be asked, yes."""
    if os.name != "posix":
        return True  # there the signal 0 is no question
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True
