"""Hostile clients against the rules: accuracy of the global model with a share of attackers, rule by rule.

    python benchmarks/bench_attacks.py [--partitions iid,dirichlet] [--seeds 0,1] [--share 0.2] [--rounds 15]
                                       [--samples 2000] [--rules N] [--json FILE]

2,000 of the embedded digits, 10 clients (so 2 are hostile), all of them in every round, a perceptron with one layer of
64, an epoch of batches of 32 at a rate of 0.1. The attackers are drawn from the seed. Accuracy on clean test data after
the last round, means over the seeds; a run whose model is no longer finite counts with what guessing gives.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import accord
from accord.engine.logs import versions
from accord.errors import DivergedError

ATTACKS = {
    "nobody": [],
    "label_flip": ["attack.name=label_flip"],
    "sign_flip, 5 times": ["attack.name=sign_flip", "attack.factor=5"],
    "scaled, 10 times": ["attack.name=scaled", "attack.factor=10"],
    "noise, 0.1": ["attack.name=noise", "attack.deviation=0.1"],
    "same_value, 0.1": ["attack.name=same_value", "attack.value=0.1"],
}
RULES = {
    "fedavg": ["algorithm.name=fedavg"],
    "median": ["algorithm.name=median"],
    "trimmed_mean, 0.2": ["algorithm.name=trimmed_mean", "algorithm.trim=0.2"],
    "krum": ["algorithm.name=krum"],
    "multi-Krum": ["algorithm.name=krum", "algorithm.keep=0"],
    "norm_clip, 1": ["algorithm.name=norm_clip", "algorithm.limit=1"],
}
COMMON = ["partition.clients=10", "clients.fraction=1.0", "local.lr=0.1", "model.name=mlp", "model.hidden=[64]"]
COMMON += ["checkpoint.every=0", "evaluate.clients=false"]
PARTITIONS = {"iid": ["partition.name=iid"], "dirichlet": ["partition.name=dirichlet", "partition.alpha=0.5"]}
GUESSING = 0.1


def accuracy(sets: list[str], seed: int) -> float:
    with tempfile.TemporaryDirectory(prefix="accord-attacks-") as folder:
        try:
            summary = accord.run(
                seed=seed, out=folder, device="cpu", executor="sequential", progress=False, sets=sets
            ).summary
        except DivergedError:
            return GUESSING
    return float(summary["accuracy"])


def measure(
    partitions: list[str], rules: list[str], seeds: list[int], common: list[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """Accuracy by partition, attack and rule; each line is shown when it is known."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for partition in partitions:
        print(f"\n| {partition} | {' | '.join(rules)} |\n|---|{'---|' * len(rules)}", flush=True)
        lines = found.setdefault(partition, {})
        for attack, attacked in ATTACKS.items():
            lines[attack] = {
                rule: statistics.mean(
                    accuracy([*common, *PARTITIONS[partition], *attacked, *RULES[rule]], seed) for seed in seeds
                )
                for rule in rules
            }
            cells = " | ".join(f"{100 * value:.1f}" for value in lines[attack].values())
            print(f"| {attack} | {cells} |", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", default="iid,dirichlet")
    parser.add_argument("--rules", type=int, default=len(RULES), help="how many of them, from the first")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    rules = list(RULES)[: given.rules]
    asked = [f"rounds={given.rounds}", f"evaluate.every={given.rounds}"]
    asked += [f"data.limit={given.samples}", f"attack.share={given.share}"]
    found = measure(given.partitions.split(","), rules, seeds, [*COMMON, *asked])
    if given.json is not None:
        record = {
            "accuracy": found,
            "share": given.share,
            "rounds": given.rounds,
            "seeds": seeds,
            "versions": versions(),
        }
        given.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
