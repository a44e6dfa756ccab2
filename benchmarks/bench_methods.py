"""Every method's round against FedAvg's, and FedRANE's bargaining on its own, all in one run.

    python benchmarks/bench_methods.py [--algorithms fedbr,fedmmd] [--device cuda] [--executor NAME] [--rounds N]

McMahan CNN (1.66M parameters), 10 clients of 250 digits, all of them in every round, B = 32, two local epochs, methods
with their default settings. The methods take turns round by round, and a ratio is the median over the turns of a
method's round to FedAvg's of the same turn; the first turn warms up and is not counted. On the CPU one thread does all
the work, and its own time is measured, which other programs on the machine disturb little. FedUFO is measured in its
second stage, where all its terms act (its first is the row of feduad). Nothing is evaluated or saved.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from accord.aggregate.nash import gram_matrix, solve_bargaining
from accord.client import Answer, Request
from accord.config import load_config
from accord.core.methods import ALGORITHMS
from accord.core.types import Replies, Result
from accord.engine.federation import Federation
from accord.engine.files import write_atomic
from accord.engine.logs import versions
from accord.engine.store import ClientStore
from accord.errors import ConfigError

RESULTS = Path(__file__).parent / "results" / "bench_methods.json"


class Seconds(NamedTuple):
    """Of one round: all of it, and what the clients took."""

    round: float
    clients: float

    @property
    def server(self) -> float:
        """Sampling, aggregation, bookkeeping."""
        return self.round - self.clients


def clock(device: torch.device) -> float:
    """Seconds this process has computed; on a GPU the time of day, once it has done what it was given."""
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


class Runner:
    """Rounds of one method."""

    def __init__(self, name: str, options: argparse.Namespace, folder: Path) -> None:
        sets = [
            f"algorithm.name={name}",
            f"model.name={options.model}",
            "partition.name=iid",
            f"partition.clients={options.clients}",
            f"data.limit={options.clients * options.samples}",
            f"clients.count={options.clients}",
            f"local.epochs={options.epochs}",
            f"local.batch_size={options.batch}",
            f"device={options.device}",
            f"executor={options.executor}",
            f"rounds={2 * (options.rounds + 1)}",
        ]
        self.federation = Federation.build(load_config(None, sets))
        self.first = options.rounds + 1  # the second half of the run: FedUFO's second stage
        self.executor = self.federation.executor()
        self.store = ClientStore(folder / name, self.federation.facts.sizes, 1 << 30)
        self.state = self.federation.first_state(self.federation.exchange(self.executor, self.store, 0))

    def round(self, turn: int) -> Seconds:
        """The next round."""
        federation, number, self.clients = self.federation, self.first + turn, 0.0
        exchange = federation.exchange(self, self.store, number)
        begin = clock(federation.device)
        self.state, _ = federation.algorithm.round(self.state, federation.world(number), exchange)
        return Seconds(clock(federation.device) - begin, self.clients)

    def run(self, request: Request) -> list[Answer]:
        """The executor with a stopwatch: to the exchange this object is the executor."""
        begin = clock(self.federation.device)
        answers = self.executor.run(request)
        self.clients += clock(self.federation.device) - begin
        return answers

    def close(self) -> None:
        self.executor.close()


def bargaining(clients: int, parameters: int, repeats: int, device: torch.device) -> dict[str, float]:
    """Milliseconds of the Nash solver with the Gram matrix given, and of that matrix."""
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(parameters, generator=generator)
    sent = [0.3 * common + torch.randn(parameters, generator=generator) for _ in range(clients)]
    results = tuple(Result({"model": {"w": one.to(device)}}, {}, {}) for one in sent)
    replies = Replies(tuple(range(clients)), results, torch.ones(clients, dtype=torch.int64), {})
    state = {"model": {"w": torch.zeros(parameters, device=device)}}
    gram = gram_matrix(state, ("model",), replies)
    power = np.random.default_rng(0).uniform(0.5, 1.5, clients)

    def milliseconds(function: Callable[[], object]) -> float:
        laps = []
        for _ in range(repeats):
            begin = clock(device)
            function()
            laps.append(1e3 * (clock(device) - begin))
        return statistics.median(laps)

    assert solve_bargaining(gram, power) is not None
    return {
        "solver_ms": milliseconds(lambda: solve_bargaining(gram, power)),
        "gram_ms": milliseconds(lambda: gram_matrix(state, ("model",), replies)),
    }


def measure(options: argparse.Namespace, names: list[str], folder: Path) -> dict[str, dict[str, float]]:
    """Ratios and milliseconds per method."""
    runners: dict[str, Runner] = {}
    for name in dict.fromkeys(["fedavg", *names]):
        try:
            runners[name] = Runner(name, options, folder)
        except ConfigError as error:
            print(f"left out: {error}\n")
    laps: dict[str, list[Seconds]] = {name: [] for name in runners}
    for turn in range(options.rounds + 1):
        for name, runner in runners.items():
            lap = runner.round(turn)
            if turn:
                laps[name].append(lap)
    for runner in runners.values():
        runner.close()
    base = [lap.round for lap in laps["fedavg"]]
    return {
        name: {
            "ratio": statistics.median(lap.round / one for lap, one in zip(found, base, strict=True)),
            "clients_ratio": statistics.median(lap.clients / one for lap, one in zip(found, base, strict=True)),
            "round_ms": 1e3 * statistics.median(lap.round for lap in found),
            "server_ms": 1e3 * statistics.median(lap.server for lap in found),
        }
        for name, found in laps.items()
    }


def main() -> None:
    """Measure, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", help="names with commas between them; all without it")
    parser.add_argument("--rounds", type=int, default=5, help="turns that count")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--samples", type=int, default=250, help="of each client")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--model", default="mcmahan_cnn")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--executor", default="sequential", help="a CPU's time is measured in this process only")
    parser.add_argument("--json", type=Path, default=RESULTS, help=f"where the figures go; default {RESULTS.name}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = options.algorithms.split(",") if options.algorithms else list(ALGORITHMS)
    with tempfile.TemporaryDirectory() as folder:
        methods = measure(options, names, Path(folder))
    nash = bargaining(100, 1_000_000, 5, torch.device(options.device))

    print("| method | a round, of FedAvg's | clients' part | server, ms |\n|---|---|---|---|")
    for name, found in sorted(methods.items(), key=lambda item: item[1]["ratio"]):
        print(f"| {name} | {found['ratio']:.2f} | {found['clients_ratio']:.2f} | {found['server_ms']:.1f} |")
    print(f"\nFedAvg's round: {methods['fedavg']['round_ms']:.0f} ms. FedRANE's bargain of 100 clients:", end=" ")
    print(f"{nash['solver_ms']:.1f} ms with the Gram matrix given, {nash['gram_ms']:.0f} ms for it (1M parameters).")
    record = {
        "date": date.today().isoformat(),
        "versions": versions(),
        "settings": {key: value for key, value in vars(options).items() if key not in ("json", "algorithms")},
        "methods": methods,
        "bargaining": nash,
    }
    write_atomic(options.json, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
