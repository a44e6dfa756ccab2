"""One local SGD step of all clients of a block on a GPU, in milliseconds: one after another, and side by side.

    python benchmarks/bench_step.py [--cases cnn10,cnn100,cnn10b64,vgg11] [--rows compiled,bare] [--json FILE]

The time of a step is the difference of a long and a short round divided by the difference in steps, so what a round
costs once (loading, answers) is not in it. The floor is the larger of the bytes that must move (weights read by the
forward and the backward pass, gradients written and read, weights read and written) over the measured bandwidth,
and the FLOPs over the measured peak of the matrix units.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from accord.client import Executor, Request, Site, Work
from accord.core.algorithm import Setup
from accord.core.keys import Key
from accord.core.methods import ALGORITHMS
from accord.core.model import Model
from accord.core.optim import SGD, Schedule
from accord.core.plan import Plan
from accord.data.federated import FederatedData, Groups, Pool
from accord.engine.logs import versions
from accord.executors.gpu.batched import Batched
from accord.executors.gpu.precision import numerics
from accord.executors.kernels import layers_for
from accord.executors.sequential import Sequential
from accord.models import MODELS
from accord.sampling import Uniform

DEVICE = torch.device("cuda")
Lengths = tuple[int, int]  # steps of a short and of a long round
QUICK: Lengths = (40, 200)
SLOW: Lengths = (4, 12)
PER_CLIENT = 200


@dataclass(frozen=True)
class Case:
    """A network and a block of clients."""

    title: str
    model: str
    shape: tuple[int, ...]
    clients: int
    batch: int


CASES = {
    "cnn10": Case("CNN 1.66M, K=10, B=10", "mcmahan_cnn", (1, 28, 28), 10, 10),
    "cnn100": Case("CNN 1.66M, K=100, B=10", "mcmahan_cnn", (1, 28, 28), 100, 10),
    "cnn10b64": Case("CNN 1.66M, K=10, B=64", "mcmahan_cnn", (1, 28, 28), 10, 64),
    "vgg11": Case("VGG11 9.2M, K=10, B=32", "vgg11", (3, 32, 32), 10, 32),
}


def data_of(case: Case) -> FederatedData:
    """Random images: the time does not depend on what is on them."""
    rng = np.random.default_rng(0)
    total = case.clients * PER_CLIENT
    pool = Pool(
        torch.tensor(rng.normal(size=(total, *case.shape)), dtype=torch.float32),
        torch.tensor(rng.integers(0, 10, total)),
    )
    groups = Groups.of(np.split(np.arange(total), case.clients))
    none = Groups.of([[]] * case.clients)
    return FederatedData("random", pool, pool, 10, groups, none, none)


def local(case: Case, data: FederatedData, steps: int, **form: bool) -> Any:
    """FedAvg's client task with so many steps."""
    torch.manual_seed(0)
    network = MODELS[case.model](case.shape, 10)
    layers = layers_for(DEVICE, compiled=form.get("compiled", False))
    model = Model(network, DEVICE, **form, layers=layers)
    setup = Setup(
        model, SGD(), Plan(steps=steps, batch_size=case.batch), Schedule(0.01), Uniform(case.clients), len(data), 10, 1
    )
    return ALGORITHMS["fedavg"](setup).tasks["train"]


def per_step(run: Callable[[str], None], lengths: Lengths, repeats: int) -> float:
    """Milliseconds of one step, by difference."""
    times: dict[str, list[float]] = {"short": [], "long": []}
    for name in ("long", "short") * 3:
        run(name)  # recording, and everything that is set up once
    for _ in range(repeats):
        for name in times:
            torch.cuda.synchronize()
            start = time.perf_counter()
            run(name)
            torch.cuda.synchronize()
            times[name].append(time.perf_counter() - start)
    gaps = [b - a for a, b in zip(times["short"], times["long"], strict=True)]
    return 1e3 * statistics.median(gaps) / (lengths[1] - lengths[0])


def ours(
    case: Case,
    make: Callable[[Site, Any], Executor],
    repeats: int,
    precision: str = "tf32",
    lengths: Lengths = QUICK,
    **form: bool,
) -> float:
    """One of our executors."""
    data = data_of(case)
    task = local(case, data, lengths[1], **form)
    plans = {name: replace(task.plan, steps=n) for name, n in zip(("short", "long"), lengths, strict=True)}
    params, buffers = task.model.init()
    shared = {"model": params, "buffers": buffers}
    tasks = {"train": task}
    with numerics(precision):
        executor = make(Site(data, Key(0), DEVICE), tasks)

        def run(name: str) -> None:
            tasks["train"] = replace(task, plan=plans[name])  # another plan; what was recorded or compiled stays
            works = [Work(client, {}, None) for client in range(case.clients)]
            answers = executor.run(Request("train", 0, 0.01, shared, works))
            assert all(answer.result is not None for answer in answers), answers[0].error

        found = per_step(run, lengths, repeats)
        executor.close()
    torch.cuda.empty_cache()
    return found


def bare(case: Case, repeats: int) -> float:
    """What one writes by hand: modules and optimizers, one client after another."""
    data = data_of(case)
    x, y = data.train_pool.x.to(DEVICE), data.train_pool.y.to(DEVICE)
    torch.manual_seed(0)
    network: torch.nn.Module = MODELS[case.model](case.shape, 10).to(DEVICE)

    def run(name: str) -> None:
        for _ in range(case.clients):
            optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
            for _ in range(SLOW[name == "long"]):
                optimizer.zero_grad()
                F.cross_entropy(network(x[: case.batch]), y[: case.batch]).backward()
                optimizer.step()

    with numerics("tf32"):
        return per_step(run, SLOW, repeats)


def ceilings() -> tuple[float, float, float]:
    """Measured: bytes per second of a large copy, and FLOP/s of large tf32 and bf16 products."""
    big = torch.empty(1 << 28, device=DEVICE)
    other = torch.empty_like(big)
    copy = 2 * 4 * big.numel() / _best(lambda: other.copy_(big))
    peaks = []
    with numerics("tf32"):
        for dtype in (torch.float32, torch.bfloat16):
            a = torch.randn(8192, 8192, device=DEVICE, dtype=dtype)
            peaks.append(2 * 8192**3 / _best(lambda a=a: a @ a))
    return copy, peaks[0], peaks[1]


def _best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(8):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def floor(case: Case, bandwidth: float, peak: float) -> tuple[float, int, int]:
    """Milliseconds nothing can beat, and the bytes and FLOPs behind them."""
    model = MODELS[case.model](case.shape, 10)
    weights = sum(p.numel() for p in model.parameters())
    moved = case.clients * weights * 4 * 6
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(
            model(torch.zeros(case.batch, *case.shape)), torch.zeros(case.batch, dtype=torch.long)
        ).backward()
    flops = case.clients * counter.get_total_flops()
    return 1e3 * max(moved / bandwidth, flops / peak), moved, flops


def variants() -> dict[str, Callable[[Case, int], float]]:
    """Rows of the table."""

    def batched(**options: Any) -> Callable[[Site, Any], Executor]:
        return lambda site, tasks: Batched(site, tasks, **options)

    rows: dict[str, Callable[[Case, int], float]] = {
        "bare loop, one after another": lambda case, n: bare(case, n),
        "accord sequential": lambda case, n: ours(case, Sequential, n, lengths=SLOW),
        "accord batched, fp32": lambda case, n: ours(case, batched(), n, "fp32"),
        "accord batched, tf32": lambda case, n: ours(case, batched(), n),
        "accord batched, tf32, channels last": lambda case, n: ours(case, batched(), n, channels_last=True),
        "accord batched, tf32, channels last, compiled": lambda case, n: ours(
            case, batched(), n, channels_last=True, compiled=True
        ),
        "accord batched, bf16": lambda case, n: ours(case, batched(), n, bf16=True),
        "accord batched, bf16, channels last": lambda case, n: ours(case, batched(), n, bf16=True, channels_last=True),
        "accord batched, bf16, channels last, compiled": lambda case, n: ours(
            case, batched(), n, bf16=True, channels_last=True, compiled=True
        ),
    }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rows", default="", help="only rows with one of these words in their title")
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    bandwidth, tf32, bf16 = ceilings()
    results: dict[str, Any] = {
        "versions": versions(),
        "device": torch.cuda.get_device_name(),
        "bandwidth": bandwidth,
        "tf32_flops": tf32,
        "bf16_flops": bf16,
        "milliseconds": {},
    }
    print(f"measured ceilings: {bandwidth / 1e12:.2f} TB/s, {tf32 / 1e12:.0f} TFLOP/s tf32, {bf16 / 1e12:.0f} bf16\n")
    for name in options.cases.split(","):
        case = CASES[name]
        least, moved, flops = floor(case, bandwidth, tf32)
        print(f"| {case.title} | ms a step | times faster than the loop | floor is |", flush=True)
        print("|---|---|---|---|")
        found: dict[str, float] = {}
        for title, measure in variants().items():
            if not any(word in title for word in options.rows.split(",")):
                continue
            try:
                found[title] = measure(case, options.repeats)
            except Exception as error:  # one variant that fails must not cost the table
                print(f"| {title} | failed: {str(error).splitlines()[0][:120]} | | |", flush=True)
                continue
            first = next(iter(found.values()))
            print(
                f"| {title} | {found[title]:.3f} | {first / found[title]:.1f} | {least / found[title]:.0%} |",
                flush=True,
            )
        print(f"| floor ({moved / 1e6:.0f} MB, {flops / 1e9:.1f} GFLOP) | {least:.3f} | | |\n", flush=True)
        results["milliseconds"][name] = {**found, "floor": least}
        if options.json:  # after every case: a run that is cut off keeps what it has
            options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
