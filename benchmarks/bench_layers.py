"""One local SGD step on one core: the papers' networks with torch's own layers and with those of
`accord.executors.kernels.cpu`.

    python benchmarks/bench_layers.py [--models mcmahan_cnn,vgg11] [--turns N] [--json FILE]

Batches of 10 random images. The two take turns; times are medians, ratios medians over turns.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from accord.engine.logs import versions
from accord.executors.kernels.cpu import cpu_layers
from accord.executors.sequential import one_thread
from accord.models import MODELS

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
SHAPES = {
    **dict.fromkeys(("mcmahan_cnn", "convnet", "report_cnn", "fedbr_cnn"), GREY),
    **dict.fromkeys(("cifar_cnn", "fedufo_cnn", "vgg11", "resnet18"), COLOUR),
}
BATCH = 10


def training(network: nn.Module, x: Tensor, y: Tensor) -> Callable[[], None]:
    """A step, to be taken again and again."""
    params = list(network.train().parameters())

    def step() -> None:
        grads = torch.autograd.grad(F.cross_entropy(network(x), y), params)
        with torch.no_grad():
            torch._foreach_add_(params, list(grads), alpha=-1e-3)

    return step


def seconds(step: Callable[[], None], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        step()
    return (time.perf_counter() - start) / times


def measure(name: str, turns: int) -> dict[str, float]:
    torch.manual_seed(0)
    plain = MODELS[name](SHAPES[name], 10)
    x, y = torch.randn(BATCH, *SHAPES[name]), torch.randint(0, 10, (BATCH,))
    ours, theirs = training(cpu_layers(copy.deepcopy(plain)), x, y), training(plain, x, y)
    times = max(2, int(0.3 / max(seconds(ours, 3), seconds(theirs, 3))))
    pairs = [(seconds(theirs, times), seconds(ours, times)) for _ in range(turns)]
    return {
        "torch_ms": 1e3 * statistics.median(a for a, _ in pairs),
        "quick_ms": 1e3 * statistics.median(b for _, b in pairs),
        "ratio": statistics.median(a / b for a, b in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(SHAPES))
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    found = {}
    print("| network | torch's layers, ms a step | quick layers | times faster |\n|---|---|---|---|")
    with one_thread():
        for name in options.models.split(","):
            found[name] = row = measure(name, options.turns)
            print(f"| {name} | {row['torch_ms']:.1f} | {row['quick_ms']:.1f} | {row['ratio']:.2f} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"versions": versions(), "step": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
