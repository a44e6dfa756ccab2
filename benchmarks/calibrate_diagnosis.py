"""Is `accord diagnose` right about federations whose skews are known, and what helps which of them?

    python benchmarks/calibrate_diagnosis.py findings [--seeds 100,101,102] [--clients 5,10,40] [--json FILE]
    python benchmarks/calibrate_diagnosis.py methods [--seeds 0,1] [--rates 0.1] [--json FILE]

`findings` makes the federations of tests/support/skewed.py with seeds that no test uses, and prints which skews were
found how often; thresholds were chosen on these. `methods` trains a few methods on some of them: clients' mean accuracy
on their own test samples, of the shared model and of their own.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import accord
from accord.data.federated import FederatedData, Groups
from accord.errors import DivergedError
from support.skewed import FEDERATIONS, generated

NAMES = ("labels", "quantity", "features", "concept", "rare", "duplicates", "drift")
TRAINED = ("concept", "rotation", "iid")
METHODS = ("fedavg", "ditto", "fedrep")


def findings(seeds: list[int], clients: list[int], quick: bool, names: list[str]) -> dict[str, object]:
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    wrong: list[str] = []
    cases = 0
    for seed in seeds:
        for count in clients:
            for name in names:
                made = generated(name, seed, count)
                result = accord.diagnose(data=made.data, quick=quick)
                seen = {one.name for one in result.findings if one.found} - {"drift"}
                found[name].update(f"{one.name}" for one in result.findings if one.found)
                cases += 1
                if not made.skews <= seen <= made.skews | made.perhaps:
                    wrong.append(f"{name}, seed {seed}, {count} clients: {', '.join(sorted(seen)) or 'nothing'}")
                    print(wrong[-1], flush=True)
    each = len(seeds) * len(clients)
    print(f"| federation ({each} of each) | {' | '.join(NAMES)} |\n|---|{'---|' * len(NAMES)}")
    for name in names:
        print(f"| {name} | {' | '.join(str(found[name][one] or '') for one in NAMES)} |")
    print(f"\n{cases - len(wrong)} of {cases} right: all skews that were put in, and no others.")
    return {"cases": cases, "wrong": wrong, "found": {name: dict(counter) for name, counter in found.items()}}


def smaller(data: FederatedData, share: float, seed: int) -> FederatedData:
    """Some of every client's training samples."""
    from dataclasses import replace

    rng = np.random.default_rng([seed, 9])
    lists = [data.train[k] for k in range(len(data))]
    kept = [np.sort(rng.permutation(one)[: max(2, round(share * len(one)))]) for one in lists]
    return replace(data, train=Groups.of(kept))


def methods(seeds: list[int], rates: list[float], rounds: int, clients: int) -> dict[str, object]:
    scores: dict[str, dict[str, list[tuple[float, float]]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in TRAINED:
            for method in METHODS:
                for rate in rates:
                    for seed in seeds:
                        data = smaller(generated(name, seed, clients).data, 0.3, seed)
                        pair = trained(data, method, rate, rounds, seed, folder, f"{name}-{method}-{rate}-{seed}")
                        scores.setdefault(name, {}).setdefault(f"{method} {rate:g}", []).append(pair)
                    print(name, method, rate, scores[name][f"{method} {rate:g}"], file=sys.stderr, flush=True)
    print("| federation | method, rate | shared model | own models |\n|---|---|---|---|")
    for name in TRAINED:
        for row, pairs in scores[name].items():
            print(f"| {name} | {row} | {mean(pairs, 0)} | {mean(pairs, 1)} |")
    return {"accuracy": scores, "rounds": rounds, "clients": clients, "seeds": seeds}


def trained(
    data: FederatedData, method: str, rate: float, rounds: int, seed: int, folder: str, name: str
) -> tuple[float, float]:
    """Mean accuracy of the clients with the shared model, and with their own."""
    sets = ["evaluate.personal=true", f"evaluate.every={rounds}", "checkpoint.every=0", "checkpoint.personal_mb=0"]
    try:
        run = accord.run(
            data=data,
            algorithm=method,
            rounds=rounds,
            lr=rate,
            seed=seed,
            out=folder,
            name=name.replace(" ", "_").replace(",", ""),
            sets=[*sets, "executor=sequential", "clients.fraction=1.0"],
            progress=False,
        )
    except DivergedError:
        return float("nan"), float("nan")
    shared = run.summary.get("client_accuracy", {}).get("mean")
    own = run.summary["personal_accuracy"]["mean"]
    return float("nan") if shared is None else float(shared), float(own)


def mean(pairs: list[tuple[float, float]], which: int) -> str:
    values = [pair[which] for pair in pairs]
    return "-" if np.isnan(values).any() else f"{100 * np.mean(values):.1f} ± {100 * np.ptp(values) / 2:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("findings", "methods"))
    parser.add_argument("--seeds", default="")
    parser.add_argument("--clients", default="")
    parser.add_argument("--rates", default="0.1")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", default="", help="federations, between semicolons")
    parser.add_argument("--quick", action="store_true", help="findings without the probe")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()

    def numbers(text: str) -> list[int]:
        return [int(word) for word in text.split(",")]

    if given.what == "findings":
        only = given.only.split(";") if given.only else list(FEDERATIONS)
        record = findings(numbers(given.seeds or "100,101,102"), numbers(given.clients or "5,10,40"), given.quick, only)
    else:
        rates = [float(word) for word in given.rates.split(",")]
        record = methods(numbers(given.seeds or "0,1"), rates, given.rounds, int(given.clients or 10))
    if given.json:
        given.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
