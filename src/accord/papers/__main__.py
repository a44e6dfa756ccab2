"""`accord reproduce` for machines that have neither typer nor rich: `python -m accord.papers ID ...`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from accord.errors import AccordError, ConfigError
from accord.papers import shelf
from accord.papers.asked import Asked, asked
from accord.papers.reproduction import RESULTS, RUNS, reproduce_all


def listed(text: str) -> list[str]:
    """Words separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str) -> list[int]:
    """Whole numbers separated by commas."""
    return [int(word) for word in listed(text)]


def main() -> int:
    """Run, print the table; exit code 2 for wrong arguments, 1 if a run failed."""
    parser = argparse.ArgumentParser(prog="python -m accord.papers", description=__doc__)
    parser.add_argument("id", nargs="*", help="experiments, or parts of them (cross:own@mmd,br); none: list them")
    parser.add_argument("--rows", type=listed, default=[], metavar="A,B", help="of one experiment")
    parser.add_argument("--places", type=listed, default=[], metavar="A,B", help="of one experiment")
    parser.add_argument("--seeds", type=numbers, default=[0], metavar="0,1,2")
    parser.add_argument("--scale", default="full", help="full, short or smoke")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--minutes", type=float, help="leave in that time")
    parser.add_argument("--runs", type=Path, default=RUNS, metavar="DIR")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="KEY=VALUE")
    parser.add_argument("--mps", action="store_true", help="let runs share the GPU")
    parser.add_argument("--note", default="", help="a remark on the hardware")
    parser.add_argument("--show", action="store_true", dest="only_show", help="run nothing")
    given = vars(parser.parse_args())
    ids = given.pop("id")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is at work ends as well as on Ctrl-C
    try:
        return _all(asked(ids, given.pop("rows"), given.pop("places")), given) if ids else _list()
    except AccordError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        sys.stderr.write("stopped: run the same command again to go on\n")
        return 128 + signal.SIGINT
    except BrokenPipeError:  # whoever read what is printed has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes on its way out
        return 128 + signal.SIGPIPE


def _list() -> int:
    print("\n".join(f"{one.id:8s}  {one.title}: {one.what}" for one in shelf.experiments()), flush=True)
    return 0


def _all(parts: Sequence[Asked], given: dict[str, object]) -> int:
    results = reproduce_all(parts, **given)  # type: ignore[arg-type]
    print("\n\n".join(result.text for result in results), flush=True)
    return 1 if any(result.failed for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
