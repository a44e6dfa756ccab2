"""Rounds per second against bare PyTorch loops that do the same steps, all in one run.

    python benchmarks/bench_engine.py [--rounds N] [--json FILE]

McMahan CNN (1.66M parameters), B = 10, one epoch, 10 clients of 100 digits a round. The bare loop is what one would
write by hand: `nn.Module`, `torch.optim.SGD`, one thread, the model reset to the server's weights for each client and
averaged at the end. "Ideal loops" are one such loop per core, side by side, each with its part of the cohort; the mean
of their times is what a perfect division of the work would take. Nothing is evaluated or saved anywhere. Machines
are noisy, so the variants take turns and the table shows medians and ratios.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from accord.config import RunConfig, load_config
from accord.engine.federation import Federation
from accord.engine.logs import versions
from accord.engine.store import ClientStore
from accord.executors.processes import cores
from accord.executors.sequential import one_thread

SETTINGS = [
    "model.name=mcmahan_cnn",
    "partition.name=iid",
    "partition.clients=40",
    "clients.count=10",
    "local.batch_size=10",
    "local.lr=0.05",
    "device=cpu",
]


class Accord:
    """Rounds of FedAvg through one of our executors."""

    def __init__(self, config: RunConfig, executor: str) -> None:
        self.federation = Federation.build(replace(config, executor=executor))
        self.data, self.algorithm = self.federation.data, self.federation.algorithm
        self.executor = self.federation.executor()
        self.store = ClientStore(Path(tempfile.gettempdir()), self.data.sizes, 1 << 30)
        self.world = self.federation.world
        self.state = self.algorithm.init(self.world(0))

    def round(self, number: int) -> None:
        exchange = self.federation.exchange(self.executor, self.store, number)
        self.state, _ = self.algorithm.round(self.state, self.world(number), exchange)


class BareLoop:
    """The same cohorts and the same number of steps, written by hand."""

    def __init__(self, twin: Accord) -> None:
        self.twin = twin
        state = twin.algorithm.init(twin.world(0))
        self.server = twin.algorithm.model.module(state["model"], {})  # type: ignore[attr-defined]

    def round(self, number: int, part: int = 0, parts: int = 1) -> None:
        with one_thread():
            cohort = self.twin.algorithm.sampler({}, self.twin.world(number))[part::parts]  # type: ignore[attr-defined]
            total = None
            for client in cohort:
                model = copy.deepcopy(self.server).train()
                optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
                x, y = self.twin.data.client(client)
                order = torch.randperm(len(y))
                for start in range(0, len(y), 10):
                    rows = order[start : start + 10]
                    optimizer.zero_grad()
                    F.cross_entropy(model(x[rows]), y[rows]).backward()
                    optimizer.step()
                trained = [p.detach() / len(cohort) for p in model.parameters()]
                total = trained if total is None else [a.add_(b) for a, b in zip(total, trained, strict=True)]
            with torch.no_grad():
                for p, value in zip(self.server.parameters(), total or [], strict=True):
                    p.copy_(value)


class IdealLoops:
    """One bare loop per core, side by side; nothing is shared, nobody waits."""

    def __init__(self, loop: BareLoop, count: int) -> None:
        context = multiprocessing.get_context("fork")
        self.pipes = []
        for part in range(count):
            ours, theirs = context.Pipe()
            context.Process(target=self._serve, args=(loop, theirs, part, count), daemon=True).start()
            self.pipes.append(ours)

    @staticmethod
    def _serve(loop: BareLoop, pipe: Any, part: int, parts: int) -> None:
        torch.set_num_threads(1)
        while True:
            number = pipe.recv()
            begin = time.perf_counter()
            loop.round(number, part, parts)
            pipe.send(time.perf_counter() - begin)

    def round(self, number: int) -> float:
        for pipe in self.pipes:
            pipe.send(number)
        return statistics.mean(pipe.recv() for pipe in self.pipes)


CHILD = """
import sys, time
import accord
from accord.observe import Observer
class Watch(Observer):
    def started(self, *_): print(time.time())
    def round_ended(self, *_): print(time.time())
accord.run(accord.load_config(sets=sys.argv[1:]), observers=[Watch()])
"""


def start_seconds() -> tuple[float, float]:
    """From the start of a fresh process until the first round begins, and until it has ended."""
    with tempfile.TemporaryDirectory() as out:
        begin = time.time()
        command = [sys.executable, "-c", CHILD, *SETTINGS, "rounds=1", f"out={out}"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(printed[0]) - begin, float(printed[1]) - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    config = load_config(None, SETTINGS)
    sequential = Accord(config, "sequential")
    bare = BareLoop(sequential)
    runners: dict[str, Any] = {
        "ideal": IdealLoops(bare, cores()),  # forked first, before anything has started a thread
        "bare": bare,
        "sequential": sequential,
        "processes": Accord(config, "processes"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    for number in range(arguments.rounds + 1):
        for name, runner in runners.items():
            begin = time.perf_counter()
            taken = runner.round(number) or time.perf_counter() - begin
            if number:  # the first round warms up
                seconds[name].append(taken)
    for runner in (sequential, runners["processes"]):
        runner.executor.close()
    median = {name: statistics.median(values) for name, values in seconds.items()}
    paired = {
        "sequential / bare loop": np.median(np.array(seconds["bare"]) / np.array(seconds["sequential"])),
        "processes / ideal loops": np.median(np.array(seconds["ideal"]) / np.array(seconds["processes"])),
        "processes / sequential": np.median(np.array(seconds["sequential"]) / np.array(seconds["processes"])),
    }
    begins, ends = (statistics.median(column) for column in zip(*(start_seconds() for _ in range(3)), strict=True))
    print("| what | rounds per second | ratio |\n|---|---|---|")
    print(f"| bare PyTorch loop, one thread | {1 / median['bare']:.2f} | 1 |")
    print(
        f"| accord, sequential | {1 / median['sequential']:.2f} | {paired['sequential / bare loop']:.2f} of the loop |"
    )
    print(
        f"| {cores()} ideal loops | {1 / median['ideal']:.2f} | "
        f"{np.median(np.array(seconds['bare']) / np.array(seconds['ideal'])):.2f} times one |"
    )
    print(
        f"| accord, processes ({cores()} cores) | {1 / median['processes']:.2f} | "
        f"{paired['processes / ideal loops']:.2f} of the ideal loops, "
        f"{paired['processes / sequential']:.2f} times sequential |"
    )
    print(f"| process start until the first round begins | {begins:.1f} s | |")
    print(f"| process start until the first round has ended, model evaluated | {ends:.1f} s | |")
    if arguments.json:
        record = {"seconds": seconds, "ratios": {k: float(v) for k, v in paired.items()}, "start": [begins, ends]}
        arguments.json.write_text(json.dumps(record | {"versions": versions(), "cores": cores()}, indent=1))


if __name__ == "__main__":
    main()
