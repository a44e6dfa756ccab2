"""Plain-torch pieces for references: the tiny perceptron's forward written out, and SGD by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from support.federation import TinyRun

Params = dict[str, Tensor]


def samples(run: TinyRun, client: int) -> tuple[Tensor, Tensor]:
    """A client's inputs and labels, straight from the pool."""
    rows = torch.as_tensor(run.data.train[client])
    return run.data.train_pool.x[rows], run.data.train_pool.y[rows]


def forward(params: Params, x: Tensor) -> Tensor:
    """`mlp` with one hidden layer of ReLUs: the weights in the order of their names."""
    names = sorted(params)
    (w1,) = (params[n] for n in names if params[n].dim() == 2 and not n.startswith("head"))
    (b1,) = (params[n] for n in names if params[n].dim() == 1 and not n.startswith("head"))
    hidden = torch.relu(x.flatten(1) @ w1.T + b1)
    return hidden @ params["head.weight"].T + params["head.bias"]


def gradient(loss: Callable[[Params], Tensor], params: Params) -> Params:
    """d loss / d params."""
    leaves = {n: p.clone().requires_grad_() for n, p in params.items()}
    grads = torch.autograd.grad(loss(leaves), list(leaves.values()))
    return dict(zip(leaves, grads, strict=True))


def local_sgd(
    run: TinyRun,
    client: int,
    start: Params,
    round: int,
    *,
    lr: float = 0.1,
    momentum: float = 0.0,
    task: str = "train",
    extra: Callable[[Params], Tensor] | None = None,
    correct: Callable[[Params], Params] | None = None,
) -> tuple[Params, int]:
    """SGD on cross-entropy (plus `extra`) over the run's own batches; `correct` changes each gradient."""
    x, y = samples(run, client)
    params = {n: p.clone() for n, p in start.items()}
    velocity: Params = {}
    batches = run.batches(client, task, round)
    for rows in batches:
        index = torch.as_tensor(rows)

        def loss(p: Params, index: Tensor = index) -> Tensor:
            value = F.cross_entropy(forward(p, x[index]), y[index])
            return value if extra is None else value + extra(p)

        grads = gradient(loss, params)
        grads = grads if correct is None else correct(grads)
        velocity = {n: momentum * velocity[n] + g for n, g in grads.items()} if velocity else grads
        params = {n: p - lr * velocity[n] for n, p in params.items()}
    return params, len(batches)
