"""Who was at work when: a line for every start and end in the folder of the runs, and from it each run's share of the
device. The time between two events belongs in equal parts to those at work; several desks may write at once.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from accord.wire.lines import lines

FILE = "turns.jsonl"


def note(runs: Path, name: str, began: bool) -> None:
    """A run starts or ends now."""
    line = {"at": time.time(), "run": name, "began": began}
    runs.mkdir(parents=True, exist_ok=True)
    with (runs / FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def shares(runs: Path) -> dict[str, float]:
    """Seconds of the device, by run."""
    if not (runs / FILE).is_file():
        return {}
    with open(runs / FILE, "rb") as file:
        events = [line.record for line in lines(file) if line.record is not None]
    found: dict[str, float] = {}
    at_work: set[str] = set()
    before = 0.0
    for event in sorted(events, key=lambda event: event["at"]):
        for name in at_work:
            found[name] = found.get(name, 0.0) + (event["at"] - before) / len(at_work)
        before = event["at"]
        (at_work.add if event["began"] else at_work.discard)(event["run"])
    return found
