"""Who was left out of a run, how often and why: for `summary.json`, and in one line for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from accord.engine.exchange import DROPPED_OUT
from accord.pace.clock import LATE, NOT_WAITED_FOR

Record = dict[str, Any]
SHOWN = 5  # clients that the line names


def named(missing: Mapping[int, str]) -> dict[str, str]:
    """As a round's record has them: of a traceback only the error itself."""
    return {str(client): _last_line(why) for client, why in sorted(missing.items())}


def account(records: Iterable[Mapping[str, Any]], name_of: Callable[[int], str] = str) -> Record:
    """What all rounds' records come to; who dropped out or came too late in the simulation is counted, not named."""
    left_out: dict[str, Record] = {}
    late = {"late": 0, "not_waited_for": 0}
    dropped_out = skipped = 0
    for record in records:
        skipped += "skipped" in record
        for client, why in record.get("missing", {}).items():
            if why == DROPPED_OUT:
                dropped_out += 1
            elif why.startswith((LATE, NOT_WAITED_FOR)):
                late["late" if why.startswith(LATE) else "not_waited_for"] += 1
            else:
                left_out[client] = {"times": left_out.get(client, {"times": 0})["times"] + 1, "why": why}
    ordered = {name_of(client): left_out[str(client)] for client in sorted(map(int, left_out))}
    counts = {name: count for name, count in late.items() if count}
    return {"left_out": ordered, "dropped_out": dropped_out, **counts, "skipped_rounds": skipped}


def line(summary: Mapping[str, Any]) -> str:
    """Who was left out and why; nothing if nobody was.

    >>> line({"left_out": {"3": {"times": 2, "why": "ValueError: no"}, "7": {"times": 1, "why": "KeyError: 'x'"}}})
    "2 clients were left out: 3 (2 times: ValueError: no), 7 (once: KeyError: 'x')"
    """
    left_out = summary.get("left_out") or {}
    if not left_out:
        return ""
    names = [f"{client} ({_often(entry['times'])}: {entry['why']})" for client, entry in left_out.items()]
    if len(names) > SHOWN:
        names[SHOWN:] = [f"and {len(names) - SHOWN} more (summary.json names them)"]
    count = len(left_out)
    return f"{count} client{' was' if count == 1 else 's were'} left out: {', '.join(names)}"


def _often(times: int) -> str:
    return "once" if times == 1 else f"{times} times"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]
