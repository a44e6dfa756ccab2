"""Which classes the cohorts of finished rounds held: a sampler that asks for much of one class shows here.

    python benchmarks/cohort_classes.py RUN [RUN ...] --rounds 51-75

For every run: how many classes a cohort held on average and at least, and the largest class's share of its samples, on
average and at most with the round of it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from accord.config import load_config
from accord.engine.build import build_data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--rounds", default="1-1000000", help="FIRST-LAST")
    given = parser.parse_args()
    first, last = (int(word) for word in given.rounds.split("-"))
    print("| run | classes in a cohort | fewest | largest class % | most % | in round |\n|---|---|---|---|---|---|")
    for run in given.runs:
        data = build_data(load_config(run / "config.toml"))
        labels = data.train_pool.y.numpy()
        held = [np.bincount(labels[data.train[k]], minlength=data.num_classes) for k in range(len(data))]
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        lines = [line for line in lines if first <= line["round"] <= last]
        cohorts = np.array([np.sum([held[k] for k in line["cohort"]], axis=0) for line in lines])
        classes, largest = (cohorts > 0).sum(1), 100 * cohorts.max(1) / cohorts.sum(1)
        cells = f"{classes.mean():.1f} | {classes.min()} | {largest.mean():.0f} | {largest.max():.0f}"
        print(f"| {run.name} | {cells} | {lines[int(largest.argmax())]['round']} |")


if __name__ == "__main__":
    main()
