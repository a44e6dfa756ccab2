"""What a curious server can see in one client's update: its samples, drawn again from the gradient.

    python examples/security/gradient_inversion.py [--iterations 600] [--cases N] [--json FILE] [--png FILE]

A client trains the 2NN on a few digits and sends its model, by Accord's own exchange. The server divides the change by
the learning rate (and the number of steps) and looks for images whose gradient points the same way: the cosine of the
two, a little total variation, Adam on the signs of the slopes, pixels held in [0, 1]. The labels are taken as known;
for one sample they can be read off the last layer. Papers: Zhu, Liu, Han. "Deep leakage from gradients". NeurIPS 2019,
arXiv 1906.08935. Zhao, Mopuri, Bilen. "iDLG". arXiv 2001.02610. Geiping, Bauermeister, Droege, Moeller. "Inverting
gradients". NeurIPS 2020, arXiv 2003.14053. Code and settings are our own: a better attack finds more.

PSNR in dB of the images found, each with the sample nearest to it; the mean digit is what one knows without an update.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import accord
from accord.core.tensors import Tree
from accord.engine.build import load_data
from accord.engine.federation import Federation
from accord.engine.logs import versions

RATE = 0.1
VARIATION = 1e-3  # weight of the total variation


@dataclass(frozen=True)
class Case:
    """What the client does, and what is done to its update before it leaves."""

    name: str
    samples: int
    steps: int = 1
    batch: int = 0  # 0: all samples in every step
    noise: float = 0.0  # deviation of each value of a change clipped to a length of 1; 0: neither clipped nor noisy


CASES = (
    Case("1 sample, 1 step", 1),
    Case("4 samples, 1 step", 4),
    Case("8 samples, 1 step", 8),
    Case("32 samples, 1 step", 32),
    Case("8 samples, 5 steps", 8, steps=5),
    Case("8 samples, 20 steps", 8, steps=20),
    Case("64 samples, an epoch of batches of 8", 64, steps=8, batch=8),
    Case("1 sample, 1 step, noise 0.0001", 1, noise=0.0001),
    Case("1 sample, 1 step, noise 0.001", 1, noise=0.001),
    Case("1 sample, 1 step, noise 0.01", 1, noise=0.01),
)


def digits(count: int) -> tuple[Tensor, Tensor]:
    """Pixels in [0, 1] and labels, different digits first."""
    pool = load_data(accord.load_config()).train
    first = torch.cat([torch.nonzero(pool.y == digit)[: math.ceil(count / 10)] for digit in range(10)], 1).flatten()
    return pool.x[first[:count]].float() / 255, pool.y[first[:count]]


def update(case: Case, x: Tensor, y: Tensor) -> tuple[nn.Module, Tree]:
    """The model a client was sent, and the mean gradient the server takes its answer for."""
    sets = [
        f"local.batch_size={case.batch}",
        f"local.steps={case.steps}",
        f"local.lr={RATE}",
        "clients.fraction=1.0",
        "device=cpu",
    ]
    owners = torch.zeros(len(y), dtype=torch.long)
    data = accord.from_arrays(x, y, owners, test=(x, y, owners), classes=10)
    federation = Federation.build(accord.load_config(sets=sets), data)
    executor = federation.executor()
    with federation.memory() as store:
        exchange = federation.exchange(executor, store, 0)
        state = federation.first_state(exchange)
        replies = exchange("train", [0], federation.algorithm.message(state))
    sent = replies.results[0].reply["model"]
    change = {name: sent[name] - state["model"][name] for name in sent}
    if case.noise:
        length = math.sqrt(sum(float(t.square().sum()) for t in change.values()))
        drawn = torch.Generator().manual_seed(0)
        for name, t in change.items():
            change[name] = t / max(length, 1) + case.noise * torch.randn(t.shape, generator=drawn)
    network = federation.model.module(state["model"], state["buffers"])
    return network, {name: -t / (RATE * case.steps) for name, t in change.items()}


def invert(network: nn.Module, gradient: Tree, labels: Tensor, iterations: int) -> Tensor:
    """[B, 1, 28, 28] pixels whose gradient points where this one does."""
    network.train()
    names = sorted(gradient)
    wanted = torch.cat([gradient[name].flatten() for name in names])
    params = [dict(network.named_parameters())[name] for name in names]
    found = torch.rand(len(labels), 1, 28, 28, generator=torch.Generator().manual_seed(1)).requires_grad_()
    optimizer = torch.optim.Adam([found], lr=0.1)
    rates = torch.optim.lr_scheduler.MultiStepLR(optimizer, [iterations * share // 8 for share in (3, 5, 7)], 0.1)
    for _ in range(iterations):
        loss = functional.cross_entropy(network(found), labels)
        slopes = torch.autograd.grad(loss, params, create_graph=True)
        apart = 1 - functional.cosine_similarity(torch.cat([slope.flatten() for slope in slopes]), wanted, dim=0)
        rough = found.diff(dim=2).abs().mean() + found.diff(dim=3).abs().mean()
        (found.grad,) = torch.autograd.grad(apart + VARIATION * rough, [found])
        found.grad.sign_()
        optimizer.step()
        rates.step()
        with torch.no_grad():
            found.clamp_(0, 1)
    return found.detach()


def nearest(found: Tensor, samples: Tensor) -> Tensor:
    """[B] which of the images found is taken for which sample: the nearest pair first, each once."""
    apart = torch.cdist(samples.flatten(1), found.flatten(1))
    chosen = torch.empty(len(samples), dtype=torch.long)
    for _ in range(len(samples)):
        row, column = divmod(int(apart.argmin()), len(found))
        chosen[row] = column
        apart[row], apart[:, column] = torch.inf, torch.inf
    return chosen


def psnr(found: Tensor, samples: Tensor) -> float:
    """Mean over the samples, in dB."""
    error = (found - samples).square().flatten(1).mean(1).clamp(min=1e-10)
    return float((-10 * error.log10()).mean())


def measure(case: Case, iterations: int) -> tuple[float, float, Tensor, Tensor]:
    """The attack's PSNR and the mean digit's, the samples, and what was found of them."""
    x, y = digits(case.samples)
    network, gradient = update(case, x, y)
    found = invert(network, gradient, y, iterations)
    found = found[nearest(found, x)]
    mean = digits(200)[0].mean(0, keepdim=True)
    return psnr(found, x), psnr(mean.expand_as(x), x), x, found


def draw(pictures: list[tuple[str, Tensor, Tensor]], where: Path) -> None:
    """Up to four samples of every case, and below them what was found."""
    from matplotlib.figure import Figure

    rows = math.ceil(len(pictures) / 2)
    figure = Figure(figsize=(8, 2.2 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False).flatten()
    for axis in axes:
        axis.axis("off")
    for axis, (title, x, found) in zip(axes, pictures, strict=False):
        shown = torch.ones(2, 4, 28, 28)
        shown[0, : len(x)], shown[1, : len(x)] = x[:4, 0], found[:4, 0]
        axis.imshow(shown.permute(0, 2, 1, 3).reshape(56, 112), cmap="gray", vmin=0, vmax=1)
        axis.set_title(title, fontsize=9)
    figure.savefig(where, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=600)
    parser.add_argument("--cases", type=int, default=len(CASES), help="how many of them, from the first")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--png", type=Path)
    given = parser.parse_args()
    print("| what the client does | PSNR of the images found, dB | of the mean digit, dB |\n|---|---|---|")
    rows, pictures = {}, []
    for case in CASES[: given.cases]:
        reached, blind, x, found = measure(case, given.iterations)
        rows[case.name] = {"psnr": round(reached, 2), "mean_digit": round(blind, 2)}
        pictures.append((f"{case.name}: {reached:.1f} dB", x, found))
        print(f"| {case.name} | {reached:.1f} | {blind:.1f} |", flush=True)
    if given.json is not None:
        record = {"cases": rows, "iterations": given.iterations, "versions": versions()}
        given.json.write_text(json.dumps(record, indent=2) + "\n")
    if given.png is not None:
        draw(pictures, given.png)


if __name__ == "__main__":
    main()
