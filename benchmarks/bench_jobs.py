"""How many equal runs at a time pay: seconds a run takes with one, four and eight of them sharing the machine.

    python benchmarks/bench_jobs.py [--device cuda] [--jobs 1,4,8] [--rounds 60] [--json FILE]

`accord compare --jobs N` on the embedded digits, McMahan's CNN, ten of twenty clients a round. With N jobs there are N
runs (two for one), from the start of the first process to the end of the last; a run's first seconds, in which it loads
torch and makes its federation, are in it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import accord
from accord.engine.logs import versions
from accord.papers.keeping import hardware

SETTINGS = (
    *("model.name=mcmahan_cnn", "partition.clients=20", "clients.count=10", "local.epochs=2", "local.batch_size=32"),
    *("evaluate.every=20", "checkpoint.every=0"),
)


def measured(jobs: int, device: str, rounds: int) -> dict[str, float]:
    """So many runs at a time."""
    runs = max(jobs, 2)
    with tempfile.TemporaryDirectory() as folder:
        sets = [*SETTINGS, f"device={device}", f"rounds={rounds}", f"out={folder}", "name=jobs"]
        begin = time.perf_counter()
        accord.compare(["fedavg"], sets=sets, seeds=range(runs), jobs=jobs)
        seconds = time.perf_counter() - begin
        trained = [_rounds(path) for path in Path(folder).rglob("timings.jsonl")]
    return {"runs": runs, "seconds": seconds, "seconds a run": seconds / runs, "of its rounds": sum(trained) / runs}


def _rounds(path: Path) -> float:
    """Seconds a run's rounds took on the clock."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return float(sum(value for line in lines for key, value in line.items() if key != "round"))


def main() -> None:
    """Print a table; write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--jobs", default="1,4,8")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: dict[str, Any] = {}
    for jobs in map(int, given.jobs.split(",")):
        found[str(jobs)] = measured(jobs, given.device, given.rounds)
        print(jobs, {name: round(value, 2) for name, value in found[str(jobs)].items()}, flush=True)
    if given.json:
        made = {"versions": versions(), "hardware": hardware(), "rounds": given.rounds, "jobs": found}
        given.json.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
