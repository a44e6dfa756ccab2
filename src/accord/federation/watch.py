"""A watchman over processes that must not outlive the command that started them, however that one ends.

`python -m accord.federation.watch` reads from its standard input which processes there are. When the input ends, be it
because the command was killed, it ends them, unless the last word was that they may stay.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from accord.federation.processes import Process, end
from accord.federation.surroundings import surroundings

STAY = "stay"


class Watch:
    """The line to the watchman."""

    def __init__(self, line: IO[str]) -> None:
        self._line = line

    def over(self, process: Process) -> None:
        """Watch over one more; told again, what is known of it by now holds."""
        self._say(json.dumps(process.as_json()))

    def stay(self) -> None:
        """They may live on."""
        self._say(STAY)

    def _say(self, word: str) -> None:
        with suppress(BrokenPipeError):  # somebody has ended the watchman; the command itself still cleans up
            self._line.write(word + "\n")
            self._line.flush()


@contextmanager
def watched() -> Iterator[Watch]:
    """A watchman for as long as this lasts; without `stay` all that was named to him has ended afterwards."""
    words = [sys.executable, "-m", "accord.federation.watch"]
    with subprocess.Popen(  # noqa: S603
        words,
        stdin=subprocess.PIPE,
        text=True,
        env=surroundings(Path()),
        start_new_session=True,  # Ctrl-C is not for him
    ) as watchman:
        assert watchman.stdin is not None
        try:
            yield Watch(watchman.stdin)
        finally:
            with suppress(BrokenPipeError):
                watchman.stdin.close()
            watchman.wait()


def keep_watch(lines: Iterable[str]) -> None:
    """Listen to the end, then act on what was said last."""
    known: dict[str, Process] = {}
    last = ""
    for line in lines:
        last = line.strip()
        if last and last != STAY:
            process = Process(**json.loads(last))
            known[process.mark] = process
    if last != STAY:
        end(known.values())


if __name__ == "__main__":
    keep_watch(sys.stdin)
