"""The runs of `accord compare`, many at a time, on a machine with many cores (and nothing but torch on it).

    python benchmarks/run_grid.py --jobs 16 --algorithms fedavg,fedufo --seeds 0,1,2 --out DIR --set KEY=VALUE ...

Each run takes one core, or `--workers` of them; with `--device cuda` the runs share the GPU. The folder is the one
`accord compare` with the same settings uses: run that afterwards, on any machine, to print the table and draw the
curves. Stopped runs go on when the command is given again. `--tune N` and `--tune-rounds R` are compare's: all trials
first, then the runs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from accord.cli.lists import numbers, words
from accord.report import read_summary
from accord.study.entry import Entry
from accord.study.plan import Comparison, Tuning
from accord.study.progress import Progress
from accord.study.tuning import search
from accord.study.work import carry_out
from accord.trackers import observers_for


def work(entry: Entry) -> str:
    begin = time.perf_counter()
    try:
        if entry.finished:
            return f"{entry.label}: finished before"
        carry_out(entry)
        outcome = f"accuracy {read_summary(entry.folder)['accuracy']}"
    except Exception:
        return f"{entry.label} FAILED\n{traceback.format_exc()}"
    return f"{entry.label}: {outcome}, {time.perf_counter() - begin:.0f} s"


def end_with(parent: int) -> None:
    """Stop when the process that started this one is gone: a grid that is killed leaves nobody at work."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def carry_out_all(entries: Sequence[Entry], jobs: int, device: str) -> None:
    # On the CPU one process per run: one that fails or leaks takes nobody with it. On a GPU starting up takes longer
    # than many a run, so processes stay; and a process that was forked cannot use it.
    spawn = multiprocessing.get_context("spawn")
    once = 1 if device == "cpu" else None
    watched = {"initializer": end_with, "initargs": (os.getpid(),)}
    with ProcessPoolExecutor(jobs, spawn, max_tasks_per_child=once, **watched) as pool:
        for future in as_completed([pool.submit(work, entry) for entry in entries]):
            print(future.result(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--algorithms", required=True)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--tune", type=int)
    parser.add_argument("--tune-rounds", type=int)
    parser.add_argument("--out", default="runs")
    parser.add_argument("--name")
    parser.add_argument("--set", action="append", default=[], dest="sets")
    given = parser.parse_args()
    sets = [*given.sets, f"out={given.out}", f"device={given.device}", f"workers={given.workers}"]
    on_cpu = "sequential" if given.workers == 1 else "processes"
    sets.append("executor=" + ("batched" if given.device == "cuda" else on_cpu))
    if given.name:
        sets.append(f"name={given.name}")
    tuning = Tuning(given.tune, given.tune_rounds) if given.tune is not None else None
    names, seeds = words(given.algorithms, "--algorithms"), numbers(given.seeds, "--seeds")
    comparison = Comparison(None, sets, names, seeds, tuning)
    chosen = None
    if tuning is not None:
        tuned = search(comparison, observers_for, Progress(), given.jobs)
        chosen = tuned.chosen
        for algorithm, choice in tuned.choices.items():
            print(f"{algorithm}: {choice.words}", flush=True)
    carry_out_all(comparison.entries(chosen), given.jobs, given.device)
    print(comparison.folder)


if __name__ == "__main__":
    main()
