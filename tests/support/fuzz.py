"""Damage drawn from fixed seeds, and a child process that meets it, bounded in time and memory."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from accord.errors import AccordError

SECONDS = 20  # for one case
MEMORY = 1 << 30  # bytes beyond what the process has when it begins
LONGEST = 12_000  # characters of an error's message: twenty problems, each with what is allowed

Case = Callable[[random.Random], str]  # draws, tries, and says what came of it; raises what nobody should see


def mutated(data: bytes, draw: random.Random) -> bytes:
    """A few flips, cuts, copies, swaps."""
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 1, 2, 5])):
        place, other = draw.randrange(len(changed) + 1), draw.randrange(len(changed) + 1)
        kind = draw.randrange(6)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << draw.randrange(8)
        elif kind == 1 and place < len(changed):
            changed[place] = draw.randrange(256)
        elif kind == 2:
            del changed[min(place, other) : min(place, other) + draw.choice([1, 2, 8, 1000])]
        elif kind == 3:
            changed[place:place] = draw.randbytes(draw.choice([1, 8, 100]))
        elif kind == 4:
            changed[place:place] = changed[min(place, other) : min(place, other) + draw.randrange(40)]
        else:
            changed = changed[:place] if draw.random() < 0.3 else changed + changed[place:]
    return bytes(changed)


def refused(work: Callable[[], Any]) -> tuple[str, Any]:
    """Our own error's name, with a message that is short; or `accepted`, with what came out."""
    try:
        return "accepted", work()
    except AccordError as error:
        if not 0 < len(str(error)) < LONGEST:
            raise AssertionError(f"a message of {len(str(error))} characters") from error
        return type(error).__name__, None


@dataclass
class Attack:
    """What came of all cases."""

    seed: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def carry_out(self, name: str, case: Case, count: int) -> None:
        """Cases 0 to `count` - 1, each with draws of its own; where one ends the child, another goes on."""
        done = 0
        while done < count:
            done = self._child(name, case, done, count)

    def _child(self, name: str, case: Case, first: int, count: int) -> int:
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reading)
            _inside(case, f"{self.seed}-{name}", range(first, count), writing)
        os.close(writing)
        done = first
        with os.fdopen(reading, "rb") as pipe:
            for line in pipe:
                outcome, problem, seconds = json.loads(line)
                self.outcomes[f"{name}: {outcome}"] += 1
                self.slowest = max(self.slowest, seconds)
                if problem:
                    self.wrong.append(f"{name}, case {done}: {problem}")
                done += 1
        status = os.waitpid(pid, 0)[1]
        if done < count:
            died = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
            said = f"more than {SECONDS} s" if died == f"signal {int(signal.SIGALRM)}" else f"it died ({died})"
            self.wrong.append(f"{name}, case {done}: {said}")
            done += 1
        return done

    def report(self) -> str:
        """For people."""
        lines = [f"{count:7d}  {what}" for what, count in sorted(self.outcomes.items())]
        return "\n".join([*lines, f"{sum(self.outcomes.values())} cases, the slowest took {self.slowest:.2f} s"])


def _inside(case: Case, seed: str, numbers: range, pipe: int) -> None:
    """All that the child does: it never returns."""
    torch.set_num_threads(1)  # the parent's threads are not here
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    os.fsync = lambda handle: None  # nothing here is meant to last
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
    for number in numbers:
        begun, problem, outcome = time.monotonic(), "", "wrong"
        signal.alarm(SECONDS)
        try:
            outcome = case(random.Random(f"{seed}-{number}"))
        except BaseException:
            problem = traceback.format_exc()[-3000:]
        signal.alarm(0)
        os.write(pipe, json.dumps([outcome, problem, time.monotonic() - begun]).encode() + b"\n")
    os._exit(0)
