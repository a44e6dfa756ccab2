"""The runs of `accord compare`, many at a time, on a machine with many cores (and nothing but torch on it).

    python benchmarks/run_grid.py --jobs 16 --algorithms fedavg,fedufo --seeds 0,1,2 --out DIR --set KEY=VALUE ...

Each run takes one core, or `--workers` of them. The folder is the one `accord compare` with the same settings uses:
run that afterwards, on any machine, to print the table and draw the curves. Stopped runs go on when the command is
given again.
"""

from __future__ import annotations

import argparse
import os
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed

from accord.cli.planning import Entry, numbers, plan, words


def carry_out(entry: Entry) -> str:
    from accord.engine.run import resume, run

    begin = time.perf_counter()
    try:
        if not entry.finished:
            outcome = resume(entry.folder) if entry.begun else run(entry.config)
            accuracy = outcome.summary["accuracy"]
            return f"{entry.label}: accuracy {accuracy}, {time.perf_counter() - begin:.0f} s"
    except Exception:
        return f"{entry.label} FAILED\n{traceback.format_exc()}"
    return f"{entry.label}: finished before"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--algorithms", required=True)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--out", default="runs")
    parser.add_argument("--name")
    parser.add_argument("--set", action="append", default=[], dest="sets")
    given = parser.parse_args()
    sets = [*given.sets, f"out={given.out}", "device=cpu", f"workers={given.workers}"]
    sets.append("executor=" + ("sequential" if given.workers == 1 else "processes"))
    if given.name:
        sets.append(f"name={given.name}")
    names = words(given.algorithms, "--algorithms")
    entries = plan(None, sets, names, numbers(given.seeds, "--seeds"))
    # One process per run: a run that fails or leaks takes nobody with it.
    with ProcessPoolExecutor(given.jobs, max_tasks_per_child=1) as pool:
        for future in as_completed([pool.submit(carry_out, entry) for entry in entries]):
            print(future.result(), flush=True)
    print(entries[0].folder.parent)


if __name__ == "__main__":
    main()
