"""What filters cost: accuracy, epsilon and bytes of the same run under each of them.

    python benchmarks/bench_filters.py [--rounds 20] [--clients 100] [--seeds 0] [--json FILE]

Digits (mnist5k) dealt to 100 clients by a Dirichlet distribution of 0.5, half of them in a round (Poisson), FedAvg with
uniform weights on a network of one hidden layer of 64. Privacy with a budget of epsilon 8 at delta 1e-5. Settings were
not searched for: clip, learning rate and rounds are the same for all rows of a kind.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import accord
from accord.config import from_dict
from accord.engine.files import write_atomic
from accord.engine.logs import versions

RESULTS = Path(__file__).parent / "results" / "bench_filters.json"
EPSILON = 8.0
ROWS: dict[str, dict[str, Any]] = {
    "none": {},
    "central": {"privacy": {"name": "central", "clip": 0.5, "epsilon": EPSILON}},
    "local": {"privacy": {"name": "local", "clip": 0.5, "epsilon": EPSILON}},
    "sample": {"privacy": {"name": "sample", "clip": 0.5, "epsilon": EPSILON}},
    "top-k 1 %": {"compress": {"keep": 0.01}},
    "8 bit": {"compress": {"bits": 8}},
    "top-k 1 %, 8 bit": {"compress": {"keep": 0.01, "bits": 8}},
    "central, top-k 10 %, 8 bit": {
        "privacy": {"name": "central", "clip": 0.5, "epsilon": EPSILON},
        "compress": {"keep": 0.1, "bits": 8},
    },
}


def configured(row: dict[str, Any], rounds: int, clients: int, seed: int, out: str) -> accord.RunConfig:
    """The run of one row."""
    common = {
        "seed": seed,
        "rounds": rounds,
        "out": out,
        "executor": "sequential",
        "device": "cpu",
        "partition": {"clients": clients, "alpha": 0.5, "test": "shared"},
        "model": {"name": "mlp", "hidden": [64]},
        "algorithm": {"name": "fedavg", "weight": "uniform"},
        "local": {"lr": 0.1, "batch_size": 20, "epochs": 2},
        "clients": {"count": clients // 2, "sampler": "poisson"},
        "evaluate": {"every": rounds, "clients": False},
        "checkpoint": {"every": 0},
    }
    return from_dict({**common, **row})


def main() -> None:
    """Run all rows, print and keep their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    found: dict[str, Any] = {}
    print("| filter | accuracy % | epsilon | noise multiplier | bytes up, MB | of none |\n|---|---|---|---|---|---|")
    for name, row in ROWS.items():
        with tempfile.TemporaryDirectory(prefix="accord-bench-") as out:
            done = [
                accord.run(configured(row, given.rounds, given.clients, seed, f"{out}/{seed}"), progress=False).summary
                for seed in seeds
            ]
        found[name] = {
            "accuracy": statistics.mean(one["accuracy"] for one in done),
            "epsilon": done[0].get("epsilon"),
            "noise": done[0].get("privacy", {}).get("noise"),
            "bytes_up": round(statistics.mean(one["bytes_up"] for one in done)),
        }
        one, plain = found[name], found["none"]
        words = [f"{one[key]:.3g}" if one[key] else "" for key in ("epsilon", "noise")]
        print(
            f"| {name} | {100 * one['accuracy']:.1f} | {words[0]} | {words[1]} | {one['bytes_up'] / 1e6:.3g} | "
            f"{one['bytes_up'] / plain['bytes_up']:.4f} |",
            flush=True,
        )
    record = {
        "date": date.today().isoformat(),
        "versions": versions(),
        "rounds": given.rounds,
        "clients": given.clients,
        "seeds": seeds,
        "rows": found,
    }
    write_atomic(given.json, json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
