"""How frozen models are best asked about clients' samples on a GPU, in FedUFO's CIFAR-10 setting.

    python benchmarks/bench_frozen.py [--clients 10] [--samples 500] [--turns 7] [--device cpu] [--set KEY=VALUE]

In FedUFO each client asks every model of its group about its own samples once a round: as many passes as the square of
the clients. The ways:

    one by one      a client after another, a model after another, as `Peers` does, with the layers of a compiled run
    torch's layers  the same with torch's own
    recorded        the same passes, each replayed from one CUDA graph, model and samples copied to where it reads them
    together, N     each model about N samples at a time, whosesoever they are

The clock is stopped once when the last pass was handed to the device and once when the device is done: where the two
are alike it is the host that takes the time. Medians over turns, in which the ways follow one another; a warm-up is not
counted. On a CPU nothing is recorded: there it only shows that the ways agree.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from accord.core.cohort import in_pieces
from accord.core.model import Model, Out
from accord.core.tensors import Tree
from accord.executors.gpu.graphs import Recorder
from accord.executors.gpu.precision import numerics
from accord.executors.kernels import rows_at_once
from bench_fedufo import federation, images

Found = list[list[Out]]  # by client and model
Way = Callable[[], Found]
Asked = tuple[Tree, Tree]  # parameters and buffers
AT_ONCE = (1024, 2048, 4096)  # samples


class Ways:
    """The same answers, found in each of the ways."""

    def __init__(self, model: Model, group: list[Asked], samples: list[Tensor]) -> None:
        self.model, self.group, self.samples = model, group, samples
        params, buffers = group[0]
        self._params = {name: tensor.clone() for name, tensor in params.items()}
        self._buffers = {name: tensor.clone() for name, tensor in buffers.items()}
        self._x = samples[0].clone()
        self._out = model.reference(self._params, self._buffers, self._x)
        self._recording = Recorder(samples[0].device).record(self._again)

    def one_by_one(self, model: Model | None = None) -> Found:
        model = model or self.model
        return [[model.reference(*asked, x) for asked in self.group] for x in self.samples]

    def recorded(self) -> Found:
        found = []
        for x in self.samples:
            self._x.copy_(x)
            found.append([self._replayed(*asked) for asked in self.group])
        return found

    def together(self, most: int) -> Found:
        all_samples = torch.cat(self.samples)
        sizes = [len(x) for x in self.samples]
        outs = [in_pieces(partial(self.model.reference, *asked), all_samples, most) for asked in self.group]
        answers = [zip(*(torch.split(said, sizes) for said in out), strict=True) for out in outs]
        return [[Out(*answer) for answer in client] for client in zip(*answers, strict=True)]

    def _again(self) -> None:
        self._out = self.model.reference(self._params, self._buffers, self._x)

    def _replayed(self, params: Tree, buffers: Tree) -> Out:
        for place, values in ((self._params, params), (self._buffers, buffers)):
            if place:
                torch._foreach_copy_(list(place.values()), [values[name] for name in place])
        self._recording.replay()
        return Out(self._out.logits.clone(), self._out.features.clone())


def unlike(params: Tree, buffers: Tree) -> Asked:
    """A model that is not the others: one that answered in the place of another would be found out."""
    return {name: tensor + 0.05 * torch.randn_like(tensor) for name, tensor in params.items()}, buffers


def timed(way: Way, device: torch.device) -> tuple[float, float]:
    """Seconds until the device has all of it, and until it is done."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    wait()
    begin = time.perf_counter()
    way()
    handed = time.perf_counter() - begin
    wait()
    return handed, time.perf_counter() - begin


def check(found: Found, expected: Found) -> None:
    """Up to rounding, which in tf32 is coarse."""
    for mine, theirs in zip(found, expected, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            for left, right in zip(one, other, strict=True):
                apart = (left - right).norm() / right.norm()
                assert apart < 3e-3, apart


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10, help="and as many models")
    parser.add_argument("--samples", type=int, default=500, help="of each client")
    parser.add_argument("--turns", type=int, default=7, help="that count")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--set", action="append", default=[], help="a setting, as of accord run")
    options = parser.parse_args()
    device = torch.device(options.device)
    executor = ["executor=batched", "precision=tf32", "compile=true"] if device.type == "cuda" else []
    sets = [f"device={device}", f"clients.count={options.clients}", *executor, *options.set]
    data = images(options.clients, options.samples)
    model = federation("cgr", data, sets).model
    group = [unlike(*model.init()) for _ in range(options.clients)]
    laps: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with numerics("tf32"), torch.no_grad(), rows_at_once():
        ways = Ways(model, group, [x.to(device) for x in data.train_pool.x.split(options.samples)])
        named: dict[str, Way] = {
            "one by one": ways.one_by_one,
            "torch's layers": partial(ways.one_by_one, Model(model.network, device)),
            "recorded": ways.recorded,
            **{f"together, {most}": partial(ways.together, most) for most in AT_ONCE},
        }
        expected = ways.one_by_one()
        for way in named.values():
            check(way(), expected)
        for _ in range(options.turns):
            for name, way in named.items():
                laps[name].append(timed(way, device))
    print("| way | ms a round | until handed to the device | of one by one |\n|---|---|---|---|")
    base = [done for _, done in laps["one by one"]]
    for name, found in laps.items():
        handed, done = (statistics.median(each) for each in zip(*found, strict=True))
        ratio = statistics.median(one / other for (_, one), other in zip(found, base, strict=True))
        print(f"| {name} | {1e3 * done:.1f} | {1e3 * handed:.1f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
