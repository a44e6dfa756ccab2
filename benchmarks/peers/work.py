"""The work every peer does, and how it takes turns: needs torch and numpy, nothing else.

A peer is a script that trains `rounds(...)` rounds of one setting. It says when its first round has ended, and after
that waits for a line on its standard input before every turn (`--turn` rounds), so that peers can take turns on one
machine. Every line it prints that starts with `@` is a JSON object for `bench_peers.py`.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Setting:
    """One federated job: FedAvg with plain SGD, one local epoch, ten classes."""

    shape: tuple[int, ...]
    clients: int
    samples: int  # of each client
    cohort: int
    lr: float
    evaluate_every: int  # rounds between two passes over the test samples; 0: none
    batch: int = 10
    tests: int = 10_000


SETTINGS = {
    "mcmahan": Setting((1, 28, 28), clients=100, samples=600, cohort=10, lr=0.05, evaluate_every=0),
    "pfl": Setting((3, 32, 32), clients=1000, samples=50, cohort=50, lr=0.1, evaluate_every=10),
}


def network(name: str, dropout: bool) -> nn.Module:
    """McMahan et al.'s MNIST network (1,663,370 parameters), or the two-layer network of pfl-research's benchmark."""
    if name == "mcmahan":
        return nn.Sequential(
            *(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, 10)),
        )
    layers = [
        *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Flatten(), nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)),
    ]
    return nn.Sequential(*(layer for layer in layers if dropout or not isinstance(layer, nn.Dropout)))


def samples(setting: Setting, test: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Noise with the shape of the real data: the work is what counts. A thousand samples, repeated."""
    rng = np.random.default_rng(int(test))
    total = setting.tests if test else setting.clients * setting.samples
    rows = np.arange(total) % 1000
    y = rng.integers(0, 10, 1000)
    return rng.standard_normal((1000, *setting.shape), dtype=np.float32)[rows], y[rows]


@functools.cache
def stored(name: str, test: bool) -> tuple[Tensor, Tensor]:
    """All samples of a setting, made once per process."""
    x, y = samples(SETTINGS[name], test)
    return torch.from_numpy(x), torch.from_numpy(y)


def arguments() -> argparse.Namespace:
    """What `bench_peers.py` tells every peer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("setting", choices=SETTINGS)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--turn", type=int, default=1, help="rounds in a turn")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--share", type=int, default=1, help="train this part of a cohort: 2 for one of two loops")
    parser.add_argument("--no-dropout", dest="dropout", action="store_false")
    return parser.parse_args()


def rounds(args: argparse.Namespace) -> int:
    """The first round, and those of all turns."""
    return 1 + args.turns * args.turn


class Turns:
    """Tells the parent when rounds have ended, and waits for the next turn."""

    def __init__(self, args: argparse.Namespace, *packages: str) -> None:
        self.turn, self.cuda = args.turn, args.device == "cuda"
        self.last = rounds(args)
        versions = {name: version(name) for name in packages} | {"torch": torch.__version__}
        print("@" + json.dumps({"versions": versions, "python": sys.version.split()[0]}), flush=True)
        self.begin = 0.0

    def round_ended(self, number: int) -> bool:
        """Rounds are counted from 1. False after the last one."""
        if self.cuda:
            torch.cuda.synchronize()
        if number == 1:
            print("@" + json.dumps({"first": time.time()}), flush=True)
        elif (number - 1) % self.turn == 0:
            seconds = (time.perf_counter() - self.begin) / self.turn
            print("@" + json.dumps({"seconds": seconds}), flush=True)
        else:
            return True
        if number >= self.last:
            return False
        sys.stdin.readline()
        self.begin = time.perf_counter()
        return True


def train(model: nn.Module, x: Tensor, y: Tensor, setting: Setting) -> None:
    """One epoch, as one would write it by hand."""
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=setting.lr)
    order = torch.randperm(len(y), device=y.device)
    for start in range(0, len(y), setting.batch):
        rows = order[start : start + setting.batch]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Share of test samples that are right."""
    model.eval()
    right = sum(int((model(a).argmax(1) == b).sum()) for a, b in zip(x.split(512), y.split(512), strict=True))
    return right / len(y)
