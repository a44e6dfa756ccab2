"""How long a model takes in the simulated clock where clients are of very different speed: four ways to wait for them.

    python benchmarks/late_clients.py            three seeds, some minutes
    python benchmarks/late_clients.py --seeds 0  one of them

Fifty clients of mnist5k, ten at work at a time, a step of 0.1 s times exp(z), 5 Mbit/s times exp(z / 2). Written to
docs/late_clients.md by hand.
"""

from __future__ import annotations

import argparse

import accord

COMMON = (
    *("partition.clients=50", "partition.alpha=0.3", "clients.count=10", "local.epochs=2", "evaluate.clients=false"),
    *("pace.step=0.1", "pace.speed=lognormal", "pace.spread=1.0", "targets=[0.8,0.85]"),
    *("pace.mbit=5", "pace.network=lognormal", "pace.network_spread=0.5", "rounds=60", "checkpoint.every=0"),
)
WAYS = {
    "wait for all ten": "fedavg",
    "ask thirteen, wait for ten (over 0.3)": "fedavg: clients.over=0.3",
    "ask twenty, wait for ten (over 1)": "fedavg: clients.over=1.0",
    "wait 3 s at most": "fedavg: pace.deadline=3",
    "FedBuff, buffers of 5": "fedbuff: buffer=5, rounds=200",
}


def main() -> None:
    """Run all, print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--out", default="runs/late")
    args = parser.parse_args()
    seeds = [int(seed) for seed in args.seeds.split(",")]
    result = accord.compare(list(WAYS.values()), sets=[*COMMON, f"out={args.out}"], seeds=seeds)
    print("| | clock to 80 % | to 85 % | a round | best | answers thrown away | sent until 80 % |")
    print("|---|---|---|---|---|---|---|")
    for words, variant in WAYS.items():
        label = accord.study.variants.read_variant(variant).label
        runs = [(result.summaries[run], result.metrics[run]) for run in result.summaries if run.algorithm == label]
        cells = [
            *(seconds([summary["clock_to"][target] for summary, _ in runs]) for target in ("0.8", "0.85")),
            f"{mean([summary['clock'] / summary['rounds'] for summary, _ in runs]):.1f} s",
            f"{100 * mean([summary['best_accuracy'] for summary, _ in runs]):.1f} %",
            f"{100 * mean([thrown_away(summary, metrics) for summary, metrics in runs]):.0f} %",
            megabytes([sent(summary, metrics) for summary, metrics in runs]),
        ]
        print(f"| {words} | {' | '.join(cells)} |")


def mean(values: list[float]) -> float:
    """Over seeds."""
    return sum(values) / len(values)


def seconds(values: list[float | None]) -> str:
    """The mean, where all runs came so far."""
    known = [value for value in values if value is not None]
    return f"{mean(known):.0f} s" if len(known) == len(values) else f"{len(known)} of {len(values)} runs"


def thrown_away(summary: dict[str, float], metrics: list[dict[str, list[int]]]) -> float:
    """The share of answers that came too late to be used."""
    lost = summary.get("late", 0) + summary.get("not_waited_for", 0)
    return lost / (lost + sum(len(record["cohort"]) for record in metrics))


def sent(summary: dict[str, dict[str, int | None]], metrics: list[dict[str, float]]) -> float | None:
    """Bytes both ways until the target was reached."""
    last = summary["rounds_to"]["0.8"]
    return None if last is None else sum(r["bytes_up"] + r["bytes_down"] for r in metrics if r["round"] <= last)


def megabytes(values: list[float | None]) -> str:
    """The mean, where all runs came so far."""
    known = [value for value in values if value is not None]
    return f"{mean(known) / 1e6:.0f} MB" if len(known) == len(values) else "-"


if __name__ == "__main__":
    main()
