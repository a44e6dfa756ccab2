"""What an earlier process left in a run's logs: the lines that count are all there, or it is said which are not."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from accord.engine.files import write_atomic
from accord.errors import CheckpointError, RunError
from accord.wire.files import no_links
from accord.wire.lines import Line, lines
from accord.wire.records import is_whole

SHOWN = 4  # problems that an error lists
SPANS = 20  # of rounds


class Kept(NamedTuple):
    """The beginning of a log."""

    bytes: int
    sum: Any  # sha256 so far


def kept_metrics(path: Path, rounds: int, digest: str = "") -> Kept:
    """The lines of rounds 1..`rounds`; CheckpointError unless all are there, in order, and sum up to `digest`.

    Nothing is changed, and lines behind them may be torn or damaged.
    """
    length, found = 0, hashlib.sha256()
    if not rounds:
        return Kept(length, found)
    try:
        with open(path, "rb", opener=no_links) as file:
            done = 0
            for line in lines(file):
                if _round(line) != done + 1:
                    break
                length, done = length + len(line.raw), done + 1
                found.update(line.raw)
                if done == rounds:
                    break
            file.seek(0)
            problems = _problems([line._replace(raw=b"") for line in lines(file)], rounds) if done < rounds else []
    except FileNotFoundError:
        problems = ["there is no such file"]
    except OSError as error:
        problems = [f"it cannot be read: {error.strerror or error}"]
    if not problems and digest and found.hexdigest() != digest:
        problems = [f"a value in lines 1 to {rounds} was changed, as their checksum is not the recorded one"]
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise CheckpointError(
            f"{path}: {'; '.join(problems[:SHOWN])}{more}. The lines of all {rounds} rounds before the checkpoint are "
            "needed as they were written: put back a sound copy of the file, or start a new run. Nothing was changed."
        )
    return Kept(length, found)


def keep_timings(path: Path, rounds: int) -> list[str]:
    """Cut the file down to the lines of rounds 1..`rounds` that can be read; what is wrong with the others."""
    kept: list[bytes] = []
    problems: list[str] = []
    last = dropped = 0
    try:
        with open(path, "rb", opener=no_links) as file:
            for line in lines(file):
                number = _round(line)
                if number is not None and last < number <= rounds and _is_timing(line):
                    kept.append(line.raw)
                    last = number
                    continue
                dropped += 1
                if line.whole and (number is None or number <= rounds):
                    problems.append(
                        f"line {line.number} is damaged ({line.problem or 'it is none of a round in turn'})"
                    )
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error
    if dropped:
        write_atomic(path, b"".join(kept))
    return problems


def _round(line: Line) -> int | None:
    """The round a whole line is of."""
    number = line.record.get("round") if line.record is not None and line.whole else None
    return number if is_whole(number) else None


def _is_timing(line: Line) -> bool:
    return all(type(value) in (int, float) for value in (line.record or {}).values())


def _problems(found: list[Line], rounds: int) -> list[str]:
    """What is wrong with lines that ought to be those of rounds 1, 2, ... in a row."""
    numbers = [(line, _round(line)) for line in found]
    known = [number for _, number in numbers if number is not None and 1 <= number <= rounds]
    missing = sorted(set(range(1, rounds + 1)) - set(known))
    damaged = [
        f"line {line.number} is damaged ({line.problem or ('it names no round' if line.whole else 'it is cut short')})"
        for line, number in numbers
        if number is None
    ]
    twice = [f"round {number} stands there {count} times" for number, count in Counter(known).items() if count > 1]
    disorder = ["its rounds are not in order"] if known != sorted(known) else []
    return [*damaged, *([f"there is no line of {in_words(missing)}"] if missing else []), *twice, *disorder] or [
        "its first line is not that of round 1"
    ]


def in_words(numbers: list[int]) -> str:
    """Rounds, shortly.

    >>> in_words([3]), in_words([2, 3, 4, 7])
    ('round 3', 'rounds 2 to 4, 7')
    """
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    words = [str(first) if first == last else f"{first} to {last}" for first, last in spans]
    more = [f"and {len(words) - SPANS} more spans"] if len(words) > SPANS else []
    return f"round{'s' if len(numbers) > 1 else ''} {', '.join([*words[:SPANS], *more])}"
