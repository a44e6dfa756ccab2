"""What FedUFO's terms cost beside FedAvg in the paper's CIFAR-10 setting: arithmetic counted, and time on a GPU.

    python benchmarks/bench_fedufo.py [--rows fedavg,all,fedufo] [--turns N] [--profile] [--json FILE] [--small]

The setting is the one of the papers' tables (`ufo-cifar10.toml`), on random images of CIFAR-10's shape and in the
second stage, where all terms act. `all` is FedUFO without dynamic sampling, `fedufo` with it (`stale`: as of a client's
last visit), `fresh` asks every client in every round.

The count is of floating-point operations of a round by what they are done for, as shares of FedAvg's round. All of
them are proportional to a client's samples, so clients of one sample give the ratios of the setting's.

With a GPU, rounds are timed as runs are made there: `executor=batched`, `precision=tf32`, `compile=true`. The rows take
turns; a ratio is the median over the turns of a round to FedAvg's of the same turn. The first turns compile and record,
and are not counted. Nothing is evaluated or saved.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from accord.client import Answer, Executor, Request
from accord.config.load import from_dict, read_toml
from accord.core.task import Task
from accord.core.types import Batch, Carry, Job, Result
from accord.data.federated import FederatedData, Groups, Pool
from accord.engine.federation import Federation
from accord.engine.logs import versions
from accord.engine.store import ClientStore
from accord.executors.gpu.precision import numerics
from accord.executors.sequential import Sequential, one_thread

SETTING = Path(__file__).parents[1] / "src" / "accord" / "papers" / "settings" / "ufo-cifar10.toml"
ROWS: dict[str, dict[str, object]] = {
    "fedavg": {"name": "fedavg"},
    "cgl": {"name": "fedufo", "terms": "cgl"},
    "cgr": {"name": "fedufo", "terms": "cgr"},
    "uad": {"name": "fedufo", "terms": "uad"},
    "all": {"name": "fedufo", "terms": "all", "dynamic": False},
    "fedufo": {"name": "fedufo", "terms": "all", "dynamic": True},
    "fresh": {"name": "fedufo", "terms": "all", "dynamic": True, "performance": "fresh"},
}
TIMED = "fedavg,all,fedufo"
STAGE_TWO = 50  # its first round, as in the tables
WARM_UP = 3  # turns: a task's first client goes alone, then all are compiled, then recorded
SMALL = ("model.name=2nn", "local.epochs=2", "clients.count=3")


def images(clients: int, samples: int) -> FederatedData:
    """Random ones, two classes to a client: neither work nor time depends on what is on them."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((clients * samples, 3, 32, 32), np.float32))
    y = (np.arange(clients)[:, None] + rng.integers(0, 2, (clients, samples))) % 10
    groups = Groups.of(np.split(np.arange(clients * samples), clients))
    pool, none = Pool(x, torch.from_numpy(y.reshape(-1))), Groups.of([[]] * clients)
    return FederatedData("random", pool, pool, 10, groups, none, none)


def federation(row: str, data: FederatedData, sets: list[str]) -> Federation:
    """The setting's, with a row's method."""
    given: Any = read_toml(SETTING)["config"]
    staged = {} if row == "fedavg" else {"stage_one_rounds": STAGE_TWO}
    given = {name: value for name, value in given.items() if name not in ("data", "partition")}
    return Federation.build(from_dict({**given, "algorithm": {**ROWS[row], **staged}}, sets), data)


class Rounds:
    """Rounds of one row, and what each exchange of the last one took."""

    def __init__(self, made: Federation, executor: Executor, folder: Path) -> None:
        self.federation, self.executor = made, executor
        self.store = ClientStore(folder, made.facts.sizes, 1 << 30)
        self.state = made.first_state(made.exchange(executor, self.store, 0))
        self.seconds: dict[str, float] = {}

    def round(self, turn: int) -> float:
        """Seconds of the next one, all of its work on the device done."""
        number, self.seconds = STAGE_TWO + turn, {}
        exchange = self.federation.exchange(self, self.store, number)
        begin = self._now()
        self.state, _ = self.federation.algorithm.round(self.state, self.federation.world(number), exchange)
        return self._now() - begin

    def run(self, request: Request) -> list[Answer]:
        """To the exchange this is the executor, with a stopwatch."""
        begin = self._now()
        answers = self.executor.run(request)
        self.seconds[request.task] = self._now() - begin
        return answers

    def close(self) -> None:
        self.executor.close()

    def _now(self) -> float:
        if self.federation.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


class Counted:
    """A task whose operations are counted."""

    def __init__(self, name: str, task: Task, found: dict[str, int]) -> None:
        self.name, self.task, self.found = name, task, found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def begin(self, job: Job) -> Carry:
        with FlopCounterMode(display=False) as counter:
            carry = self.task.begin(job)
        return self._noted("begin", counter, carry)

    def step(self, job: Job, carry: Carry, batch: Batch) -> Carry:
        with FlopCounterMode(display=False) as counter:
            carry = self.task.step(job, carry, batch)
        return self._noted("steps", counter, carry)

    def finish(self, job: Job, carry: Carry) -> Result:
        with FlopCounterMode(display=False) as counter:
            result = self.task.finish(job, carry)
        return self._noted("finish", counter, result)

    def _noted(self, what: str, counter: Any, value: Any) -> Any:
        self.found[f"{self.name} {what}"] += counter.get_total_flops()
        return value


def count(row: str, sets: list[str], clients: int, folder: Path) -> dict[str, int]:
    """Operations of a round by task and phase, one client after another on this machine's processor."""
    sets = [*sets, "device=cpu", "executor=sequential", "local.batch_size=0"]
    made = federation(row, images(clients, 1), sets)
    found: dict[str, int] = defaultdict(int)
    counted: Mapping[str, Any] = {name: Counted(name, task, found) for name, task in made.algorithm.tasks.items()}
    Rounds(made, Sequential(made.site(), counted), folder).round(0)
    return dict(found)


def show_counts(found: Mapping[str, Mapping[str, int]]) -> None:
    """A table of shares of FedAvg's round."""
    base = sum(found["fedavg"].values())
    names = [f"{task} {phase}" for task in ("performance", "prior", "train") for phase in ("begin", "steps", "finish")]
    names = [name for name in names if any(row.get(name) for row in found.values())]
    print(f"| operations, of FedAvg's round | all | {' | '.join(names)} |\n" + "|---" * (len(names) + 2) + "|")
    for row, parts in found.items():
        shares = [f"{parts[name] / base:.3f}" if parts.get(name) else "" for name in names]
        print(f"| {row} | {sum(parts.values()) / base:.3f} | " + " | ".join(shares) + " |")


def measure(options: argparse.Namespace, sets: list[str], data: FederatedData, folder: Path) -> dict[str, Any]:
    """Seconds and ratios by row."""
    begin = time.perf_counter()
    runs: dict[str, Rounds] = {}
    laps: dict[str, list[float]] = defaultdict(list)
    parts: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in options.rows.split(","):
        made = federation(row, data, sets)
        runs[row] = Rounds(made, made.executor(), folder / row)
    for turn in range(WARM_UP + options.turns):
        for row, run in runs.items():
            lap = run.round(turn)
            if turn >= WARM_UP:
                laps[row].append(lap)
                for task, seconds in run.seconds.items():
                    parts[row][task].append(seconds)
        if turn == WARM_UP - 1:
            print(f"compiled and recorded after {time.perf_counter() - begin:.0f} s\n", flush=True)
    if options.profile:
        profile(runs[options.rows.split(",")[-1]], WARM_UP + options.turns)
    for run in runs.values():
        run.close()
    base = laps.get("fedavg") or next(iter(laps.values()))
    return {
        row: {
            "ratio": statistics.median(lap / one for lap, one in zip(found, base, strict=True)),
            "seconds": statistics.median(found),
            "exchanges": {task: statistics.median(each) for task, each in parts[row].items()},
        }
        for row, found in laps.items()
    }


def profile(run: Rounds, turn: int) -> None:
    """Where the next round's time goes: kernels, and what the host does."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    with watch(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        run.round(turn)
    for key in ("self_device_time_total", "self_cpu_time_total"):
        print(seen.key_averages().table(sort_by=key, row_limit=25, max_name_column_width=60))


def show_seconds(found: Mapping[str, Any]) -> None:
    print("| a round on the GPU | of FedAvg's | ms | exchanges, ms |\n|---|---|---|---|")
    for row, one in found.items():
        parts = ", ".join(f"{task} {1e3 * seconds:.0f}" for task, seconds in one["exchanges"].items())
        print(f"| {row} | {one['ratio']:.2f} | {1e3 * one['seconds']:.0f} | {parts} |")
    print(flush=True)


def main() -> None:
    """Count, and measure where there is a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=TIMED, help=f"those that are timed: {', '.join(ROWS)}")
    parser.add_argument("--turns", type=int, default=7, help="that count")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu: no timing")
    parser.add_argument("--profile", action="store_true", help="of the last row: its kernels, and the host's work")
    parser.add_argument("--small", action="store_true", help="a small network and little work, to see that it runs")
    parser.add_argument("--set", action="append", default=[], help="a setting, as of accord run")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args()
    sets = [*(SMALL if options.small else ()), *options.set]
    record: dict[str, Any] = {"versions": versions(), "rows": options.rows, "sets": sets}
    with tempfile.TemporaryDirectory() as folder:
        if options.device != "cpu":
            clients, samples = (6, 20) if options.small else (100, 500)
            timed = ["device=cuda", "executor=batched", "precision=tf32", f"compile={str(not options.small).lower()}"]
            with numerics("tf32"):
                record["seconds"] = measure(options, [*timed, *sets], images(clients, samples), Path(folder))
            record["device"] = torch.cuda.get_device_name()
            show_seconds(record["seconds"])
        with one_thread():
            counts = {row: count(row, sets, 6 if options.small else 100, Path(folder) / "count" / row) for row in ROWS}
        record["operations"] = counts
        show_counts(counts)
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
