"""Time and memory of a round as the federation, the cohort and the model grow, one at a time.

    python benchmarks/bench_scale.py [--vary clients,cohort,parameters] [--turns N] [--json FILE]

FedAvg through `accord.run`; every client has 10 samples of 32 features and takes one step a round; the model is a
perceptron of the wanted size; nothing is evaluated or saved. Every point is a process of its own.
`start`: from the start of the process until the first round begins. `round`: median of the rounds after the first.
`memory`: the most that server and workers held together (proportional set size, sampled while they ran).
The slopes are those of a straight line through the logarithms: 0 is flat, 1 is proportional.
1,000 clients and the largest federation take turns `--turns` times: their ratio is a median over turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Point = dict[str, Any]
BASE = {"clients": 1000, "cohort": 100, "parameters": 10_000}
SERIES: dict[str, tuple[dict[str, int], list[int]]] = {
    "clients": ({}, [100, 1000, 10_000, 100_000, 1_000_000]),
    "cohort": ({"clients": 10_000}, [10, 100, 1000, 10_000]),
    "parameters": ({"cohort": 10}, [10_000, 100_000, 1_000_000, 10_000_000, 100_000_000]),
}


def run_point(clients: int, cohort: int, parameters: int, rounds: int) -> None:
    """Runs in a process of its own and prints when rounds began and ended."""
    import numpy as np
    from torch import nn

    import accord
    from accord.models import adapt
    from accord.observe import Observer

    class Watch(Observer):
        def started(self, *_: object) -> None:
            print(time.time(), flush=True)

        def round_ended(self, round: int, record: object) -> None:
            print(time.time(), flush=True)

    rng = np.random.default_rng(0)
    rows = np.arange(10 * clients) % 1000  # noise, repeated: the samples' values do not matter
    x, y = rng.standard_normal((1000, 32), dtype=np.float32)[rows], rng.integers(0, 10, 1000)[rows]
    dataset = accord.from_arrays(x, y, clients=np.repeat(np.arange(clients), 10), test=(x[:1000], y[:1000]))
    width = int((-43 + math.sqrt(43**2 + 4 * parameters)) / 2)  # width^2 + 43 width + 10 values
    layers = [nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)]
    with tempfile.TemporaryDirectory() as out:
        config = accord.load_config(
            sets=[
                f"out={out}",
                f"rounds={rounds}",
                f"partition.clients={clients}",
                f"clients.count={cohort}",
                f"evaluate.every={rounds}",
                "partition.name=natural",
                "local.batch_size=10",
                "evaluate.clients=false",
                "checkpoint.every=0",
                "device=cpu",
            ]
        )
        accord.run(config, data=dataset, model=adapt(nn.Sequential(*layers), "4"), observers=[Watch()])


def held(root: int) -> int:
    """Bytes of the process and all below it, shared pages counted once."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry)] = int(fields[1])
    family = {root}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    total = 0
    for process in family:
        try:
            lines = Path("/proc", str(process), "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total


def measure(point: dict[str, int], rounds: int) -> Point:
    """One process; its memory is looked at while it runs."""
    command = [sys.executable, __file__, "--point", json.dumps(point | {"rounds": rounds})]
    begin = time.time()
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(command, stdout=said, stderr=subprocess.PIPE, text=True)
        most = 0
        while child.poll() is None:
            most = max(most, held(child.pid))
            time.sleep(0.5)
        if child.returncode:
            raise SystemExit(f"{point} ended with exit code {child.returncode}:\n{child.communicate()[1][-3000:]}")
        said.seek(0)
        times = [float(line) for line in said.read().split()]
    laps = [b - a for a, b in itertools.pairwise(times)]
    steady = laps[1:-1] or laps  # the first round forks and warms up, the last one evaluates
    return {**point, "start": times[0] - begin, "round": statistics.median(steady), "rounds": laps, "memory": most}


def slope(pairs: Iterable[tuple[float, float]]) -> float:
    """Of the least-squares line through the logarithms."""
    logs = [(math.log(a), math.log(b)) for a, b in pairs]
    x, y = (statistics.mean(column) for column in zip(*logs, strict=True))
    return sum((a - x) * (b - y) for a, b in logs) / sum((a - x) ** 2 for a, _ in logs)


def show(varied: str, points: list[Point]) -> dict[str, float]:
    fixed = ", ".join(f"{points[0][name]:,} {name}" for name in BASE if name != varied)
    print(f"\n| {varied} ({fixed}) | start | round | memory |\n|---|---|---|---|")
    for point in points:
        memory = point["memory"] / 2**30
        print(f"| {point[varied]:,} | {point['start']:.1f} s | {point['round']:.3f} s | {memory:.2f} GiB |")
    slopes = {what: slope((p[varied], p[what]) for p in points) for what in ("start", "round", "memory")}
    print(f"| slope | {slopes['start']:.2f} | {slopes['round']:.2f} | {slopes['memory']:.2f} |", flush=True)
    return slopes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vary", default="clients,cohort,parameters")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--most", type=int, default=10**9, help="leave out larger values, for a quick look")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "bench_scale.json")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.point:
        run_point(**json.loads(args.point))
        return
    from accord.engine.logs import versions
    from accord.executors.processes import cores

    record = json.loads(args.json.read_text()) if args.json.exists() else {}
    record |= {"date": str(date.today()), "versions": versions(), "cores": cores(), "load": os.getloadavg()}
    for varied in args.vary.split(","):
        changed, values = SERIES[varied]
        points = []
        for value in (v for v in values if v <= args.most):
            point = BASE | changed | {varied: value}
            heavy = point["cohort"] * point["parameters"] > 10**8 or point["cohort"] > 1000
            points.append(measure(point, rounds=3 if heavy else 12))
        record[varied] = {"points": points, "slopes": show(varied, points)}
        if varied == "clients":
            few, many = BASE, BASE | {"clients": points[-1]["clients"]}
            pairs = [(measure(few, 12), measure(many, 12)) for _ in range(args.turns)]
            ratio = statistics.median(b["round"] / a["round"] for a, b in pairs)
            print(f"\n{many['clients']:,} clients against {few['clients']:,}: a round takes {ratio:.2f} times as long")
            record[varied] |= {"pairs": pairs, "ratio": ratio}
        args.json.parent.mkdir(exist_ok=True)
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
