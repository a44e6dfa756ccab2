"""FedUFO written out once more from the paper's formulas, in plain torch; of the library it uses only the keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from support.federation import TinyRun
from support.reference import Params, gradient, samples


@dataclass
class Options:
    """The settings of a run, with FedUFO's defaults spelt out again."""

    terms: tuple[str, ...] = ()
    stage_one: int = 0
    uad: float = 1.0
    cgr: float = 1.0
    cgl: float = 3.0
    kl: str = "reverse"
    reduction: str = "mean"
    target: str = "softmax"
    start: str = "global"
    classes: str = "all"
    home: str = "server"
    train: str = "round"
    layers: int = 2
    rate: float = 0.01
    momentum: float = 0.9
    epochs: int = 1
    lr: float = 0.1
    model_momentum: float = 0.0
    decay: float = 0.0
    hidden: int = 0
    width: int = 5  # of what the discriminator reads
    reads: Callable[[Params, Tensor], tuple[Tensor, Tensor]] = lambda p, x: both(p, x)  # with the logits


def both(p: Params, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and features of the tiny perceptron."""
    w1, b1 = (p[next(n for n in p if p[n].dim() == d and not n.startswith("head"))] for d in (2, 1))
    hidden = torch.relu(x.flatten(1) @ w1.T + b1)
    return hidden @ p["head.weight"].T + p["head.bias"], hidden


def with_maps(p: Params, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and flattened maps of the tiny convolutional network, the convolution written as a sum over shifts."""
    kernel, bias = p["maps.0.weight"], p["maps.0.bias"]
    size = x.shape[-1] - 2
    maps = bias.view(1, -1, 1, 1) + sum(
        kernel[:, 0, i, j].view(1, -1, 1, 1) * x[:, :, i : i + size, j : j + size] for i in range(3) for j in range(3)
    )
    flat = torch.relu(maps).flatten(1)
    hidden = torch.relu(flat @ p["neck.1.weight"].T + p["neck.1.bias"])
    return hidden @ p["head.weight"].T + p["head.bias"], flat


def soft(z: Tensor) -> Tensor:
    """Softmax over the last axis."""
    e = torch.exp(z)
    return e / e.sum(-1, keepdim=True)


def answers(d: Params, f: Tensor) -> Tensor:
    """The discriminator's probabilities."""
    depth = len(d) // 2
    for layer in range(depth):
        f = f @ d[f"{layer}.weight"].T + d[f"{layer}.bias"]
        f = torch.relu(f) if layer < depth - 1 else f
    return soft(f)


def divergence(o: Options, ours: Tensor, target: Tensor) -> Tensor:
    """Mean over samples (and classes) of KL between probabilities."""
    a, b = (ours, target) if o.kl == "reverse" else (target, ours)
    return (a * torch.log(a / b)).sum() / len(ours) / (ours.shape[1] if o.reduction == "mean" else 1)


def merged(o: Options, priors: dict[int, Params], counts: dict[int, list[int]], x: Tensor) -> Tensor:
    """Eq. 7 and its two other readings."""
    group = list(priors)
    classes = range(len(counts[group[0]]))
    totals = [sum(counts[j][c] for j in group) for c in classes]
    u = torch.zeros(len(x), len(totals))
    for j in group:
        logits = o.reads(priors[j], x)[0]
        said = logits if o.target == "logits" else soft(logits)
        share = torch.tensor([counts[j][c] / totals[c] if totals[c] else 0.0 for c in classes])
        u = u + share * said
    if o.target == "normalise":
        return (u / u.sum(1, keepdim=True)).clamp(min=1e-8)
    return soft(u)


def draw(o: Options, run: TinyRun, features: int, outputs: int, round: int, client: int, seed: int) -> Params:
    """Linear's default: uniform within 1 / sqrt(inputs), weight before bias."""
    rng = type(run.key)(seed).at("discriminator", round, client)
    sizes = [features] + [o.hidden or features] * (o.layers - 1) + [outputs]
    tree = {}
    for i in range(o.layers):
        bound = 1 / math.sqrt(sizes[i])
        tree[f"{i}.weight"] = torch.tensor(rng.uniform(-bound, bound, (sizes[i + 1], sizes[i])))
        tree[f"{i}.bias"] = torch.tensor(rng.uniform(-bound, bound, (sizes[i + 1],)))
    return tree


@dataclass
class Reference:
    """The server's model and discriminator, the clients' own discriminators."""

    run: TinyRun
    o: Options
    w: Params
    d: Params = field(default_factory=dict)
    own: dict[int, Params] = field(default_factory=dict)

    def counts(self, k: int) -> list[int]:
        y = samples(self.run, k)[1]
        return [int((y == c).sum()) for c in range(self.run.data.num_classes)]

    def sgd(self, params: Params, grads: Params, velocity: Params, lr: float, momentum: float) -> Params:
        grads = {n: g + self.o.decay * params[n] for n, g in grads.items()}
        for n in grads:
            velocity[n] = momentum * velocity[n] + grads[n] if n in velocity else grads[n]
        return {n: params[n] - lr * velocity[n] for n in params}

    def prior(self, k: int, round: int) -> Params:
        x, y = samples(self.run, k)
        p, velocity = dict(self.w), {}
        for rows in self.run.batches(k, "prior", round):
            i = torch.as_tensor(rows)
            grads = gradient(lambda q, i=i: nll(self.o.reads(q, x[i])[0], y[i]), p)
            p = self.sgd(p, grads, velocity, self.o.lr, self.o.model_momentum)
        return p

    def learn(self, d: Params, k: int, group: list[int], priors: dict[int, Params], p: Params, x: Tensor) -> Params:
        """The gradient of eq. 5 at the discriminator d."""
        label = {j: j if self.o.classes == "all" else group.index(j) for j in group}

        def loss(v: Params) -> Tensor:
            total = torch.zeros(())
            for j in group:
                f = self.o.reads(p if j == k else priors[j], x)[1]
                said = torch.log(answers(v, f)[:, label[j]]).mean()
                total = total - said / (1 if j == k else len(group) - 1)
            return total

        return gradient(loss, d)

    def posterior(self, k: int, round: int, group: list[int], priors: dict[int, Params]) -> tuple[Params, Params]:
        o, run = self.o, self.run
        x, y = samples(run, k)
        start = dict(self.w)
        p, velocity = (dict(priors[k]) if o.start == "prior" else dict(start)), {}
        d, seed = self.discriminator(k, round, group)
        d_velocity: Params = {}
        learns = o.rate > 0 and "uad" in o.terms and not (o.home == "fresh" and o.train == "round")
        two = round >= o.stage_one
        counts = {j: self.counts(j) for j in group}
        for rows in run.batches(k, "train", round):
            i = torch.as_tensor(rows)

            def loss(q: Params, i: Tensor = i, d: Params = d) -> Tensor:
                logits, features = o.reads(q, x[i])
                total = nll(logits, y[i])
                if "uad" in o.terms:
                    said = answers(d, features)
                    total = total + o.uad * -torch.log(said).sum() / said.shape[1] / len(i)
                if "cgr" in o.terms and two:
                    total = total + o.cgr * divergence(o, soft(logits), merged(o, priors, counts, x[i]))
                if "cgl" in o.terms and two:
                    total = total + o.cgl * divergence(o, soft(logits), soft(o.reads(start, x[i])[0]))
                return total

            p = self.sgd(p, gradient(loss, p), velocity, o.lr, o.model_momentum)
            if learns and o.train == "batch":
                d = self.sgd(d, self.learn(d, k, group, priors, p, x[i]), d_velocity, o.lr * o.rate, o.momentum)
        if learns and o.train == "round":
            rng = type(run.key)(seed).at("discriminator.order", round, k)
            for _ in range(o.epochs):
                order = rng.permutation(len(y))
                for first in range(0, len(y), 4):
                    i = torch.as_tensor(np.ascontiguousarray(order[first : first + 4]))
                    grads = self.learn(d, k, group, priors, p, x[i])
                    d = self.sgd(d, grads, d_velocity, o.lr * o.rate, o.momentum)
        return p, d

    def discriminator(self, k: int, round: int, group: list[int]) -> tuple[Params, int]:
        if "uad" not in self.o.terms:
            return {}, 0
        o, seed = self.o, int(self.run.state["alignment"]["seed"])
        clients = len(self.run.data)
        if o.home == "server":
            return self.d, seed
        if o.home == "client":
            return self.own.get(k) or draw(o, self.run, o.width, clients, -1, k, seed), seed
        return draw(o, self.run, o.width, clients if o.classes == "all" else len(group), round, k, seed), seed

    def round(self, round: int, group: list[int]) -> None:
        needed = bool({"uad", "cgr"} & set(self.o.terms))
        priors = {j: self.prior(j, round) for j in group} if needed and "prior" in self.run.algorithm.tasks else {}
        found = {k: self.posterior(k, round, group, priors) for k in group}
        sizes = {k: int(self.run.data.sizes[k]) for k in group}
        total = sum(sizes.values())
        self.w = {n: sum(sizes[k] / total * found[k][0][n] for k in group) for n in self.w}
        if self.o.home == "server":
            self.d = {n: sum(sizes[k] / total * found[k][1][n] for k in group) for n in self.d}
        for k in group:
            self.own[k] = found[k][1]


def nll(logits: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy."""
    return -torch.log(soft(logits)[torch.arange(len(y)), y]).mean()
