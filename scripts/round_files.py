"""The files one round passes, in the order they are first entered: what a reader has to open to follow it.

    python scripts/round_files.py                        FedAvg, clients one after another
    python scripts/round_files.py algorithm.name=moon    with other settings

The second round of a run is watched, from the end of the first: training, evaluation, records and checkpoint.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

import accord

HOME = Path(accord.__file__).parent
SMALL = ("data.limit=200", "partition.clients=4", "clients.count=2", "rounds=3", "executor=sequential", "device=cpu")


class Watch(accord.Observer):
    """Notes which files are entered between the ends of the first two rounds, and by which functions."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, None]] = {}

    def round_ended(self, round: int, record: dict[str, Any]) -> None:
        """The first begins the watch, since what is computed once is then computed; the second ends it."""
        sys.setprofile(self._note if round == 1 else None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(HOME):
            self.files.setdefault(path.relative_to(HOME).as_posix(), {})[frame.f_code.co_name] = None


def entered(*sets: str) -> dict[str, dict[str, None]]:
    """Files below src/accord, each with the functions that were called, in the order of the first call."""
    watch = Watch()
    with tempfile.TemporaryDirectory(prefix="accord-files-") as folder:
        accord.run(accord.load_config(sets=[*SMALL, f"out={folder}", *sets]), observers=[watch])
    return watch.files


def main() -> None:
    """Print them, with the functions entered in each."""
    files = entered(*sys.argv[1:])
    for file, functions in files.items():
        print(f"{file:32} {len(functions):3}  {', '.join(name for name in functions if not name.startswith('<'))}")
    print(f"{len(files)} files, {sum(map(len, files.values()))} functions")


if __name__ == "__main__":
    main()
