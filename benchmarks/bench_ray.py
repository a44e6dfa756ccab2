"""Seconds per round on Ray against the forked pool, in one run.

    python benchmarks/bench_ray.py [--rounds N] [--workers N] [--model NAME] [--json FILE]

The rounds of `bench_engine.py` (McMahan CNN, 10 clients of 100 digits, batches of 10) by `processes` and by `ray`, both
with one worker per core. They take turns, so what else the machine does costs both alike; the ratio is the median of
the rounds' ratios. Ray is of this machine and started here: its own processes are part of what is measured. "Start" is
from the first request until its answers, less a later round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

from accord.config import load_config
from accord.engine.logs import versions
from accord.executors.processes import cores
from bench_engine import SETTINGS, Accord


def timed(runner: Accord, number: int) -> float:
    begin = time.perf_counter()
    runner.round(number)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--model", default="mcmahan_cnn")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    config = load_config(None, [*SETTINGS, f"model.name={arguments.model}"])
    config = replace(config, workers=arguments.workers or cores())
    runners = {name: Accord(config, name) for name in ("processes", "ray")}
    first = {name: timed(runner, 0) for name, runner in runners.items()}
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    try:
        for number in range(1, arguments.rounds + 1):
            order = list(runners) if number % 2 else list(runners)[::-1]
            for name in order:
                seconds[name].append(timed(runners[name], number))
    finally:
        for runner in runners.values():
            runner.executor.close()
    median = {name: statistics.median(values) for name, values in seconds.items()}
    ratio = statistics.median(p / r for p, r in zip(seconds["processes"], seconds["ray"], strict=True))
    start = {name: first[name] - median[name] for name in runners}
    print("| executor | seconds per round | speed | start |\n|---|---|---|---|")
    print(f"| processes | {median['processes']:.2f} | 1 | {start['processes']:.1f} s |")
    print(f"| ray | {median['ray']:.2f} | {ratio:.2f} | {start['ray']:.1f} s |")
    if arguments.json:
        record = {
            "seconds": seconds,
            "ratio": ratio,
            "start": start,
            "workers": config.workers,
            "model": arguments.model,
        }
        arguments.json.write_text(json.dumps(record | {"versions": versions(), "cores": cores()}, indent=1))


if __name__ == "__main__":
    main()
