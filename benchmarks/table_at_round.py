"""A comparison read at one round, from the runs' metrics (finished or not, as long as they got that far).

    python benchmarks/table_at_round.py FOLDER --round 40 [--last 10]

Mean ± sample deviation over the seeds that are there: accuracy at that round, the mean of the five best evaluations up
to it, and the worst client and the deviation over clients at that round. With `--last N` each is the mean over the last
N evaluations (but for the five best): single rounds swing with who took part in them.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from pathlib import Path

COLUMNS = ("accuracy", "five best", "worst client", "std over clients")


def numbers(folder: Path, last: int, count: int) -> list[float] | None:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    seen = [line for line in lines if line["round"] <= last and "accuracy" in line]
    if not seen or seen[-1]["round"] != last:
        return None
    best = sorted((line["accuracy"] for line in seen), reverse=True)[:5]
    steady = seen[-count:]
    worst, spread = (statistics.mean(line["clients"][key] for line in steady) for key in ("worst", "std"))
    return [statistics.mean(line["accuracy"] for line in steady), statistics.mean(best), worst, spread]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--round", type=int, required=True)
    parser.add_argument("--last", type=int, default=1)
    given = parser.parse_args()
    found: dict[str, list[list[float]]] = defaultdict(list)
    for run in sorted(path.parent for path in given.folder.glob("*/metrics.jsonl")):
        row = numbers(run, given.round, given.last)
        if row is not None:
            found[run.name.rsplit("-", 1)[0]].append(row)
    print(f"| method | seeds | {' | '.join(COLUMNS)} |\n|---|---|{'---|' * len(COLUMNS)}")
    for name, rows in found.items():
        cells = [
            f"{100 * statistics.mean(c):.1f} ± {100 * (statistics.stdev(c) if len(c) > 1 else 0):.1f}"
            for c in zip(*rows, strict=True)
        ]
        print(f"| {name} | {len(rows)} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
