"""Pieces the references of the baselines share: runs from a factory, SGD over named leaves, plain means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from accord.executors.processes import Processes
from accord.executors.sequential import one_thread
from support.federation import Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup
from support.reference import Params, forward, samples

COHORTS = ([0, 2], [1, 3], [0, 1])
Loss = Callable[[Params, Tensor], Tensor]  # of the leaves and the positions of a batch
Step = Callable[[int], Sequence[str]]  # which leaves the step of this number moves


def make(factory: Callable[..., Any], settings: dict[str, Any] | None = None, **options: Any) -> TinyRun:
    """A tiny run of a method that need not be registered."""
    run = {name: options.pop(name) for name in ("executor", "with_test", "seed") if name in options}
    data = options.pop("data", None) or tiny_data(dtype=torch.get_default_dtype())
    model = options.pop("model", None) or tiny_model()
    method = factory(tiny_setup(data, model, **options), **(settings or {}))
    return TinyRun(method, data=data, model=model, **run)


def close(ours: Params, reference: Params, tolerance: float = 1e-9) -> bool:
    """Every leaf of the reference is found, to within rounding."""
    return ours.keys() == reference.keys() and all(
        torch.allclose(ours[n], reference[n], rtol=tolerance, atol=tolerance) for n in reference
    )


def mean(models: Sequence[Params], weights: Iterable[float] | None = None) -> Params:
    """sum_k w_k m_k / sum_k w_k, uniform unless told."""
    given = [1.0] * len(models) if weights is None else list(weights)
    total = sum(given)
    return {n: sum(w / total * m[n] for w, m in zip(given, models, strict=True)) for n in models[0]}


@one_thread()
def descend(
    start: Params,
    batches: Sequence[np.ndarray],
    loss: Loss,
    *,
    lr: float = 0.1,
    momentum: float = 0.0,
    decay: float = 0.0,
    moves: Step | None = None,
) -> Params:
    """SGD on `loss`; leaves that do not move in a step keep their value and their velocity."""
    params = {n: p.clone() for n, p in start.items()}
    velocity = {n: torch.zeros_like(p) for n, p in params.items()}
    for number, rows in enumerate(batches):
        leaves = {n: p.clone().requires_grad_() for n, p in params.items()}
        found = torch.autograd.grad(loss(leaves, torch.as_tensor(rows)), list(leaves.values()), allow_unused=True)
        for name, grad in zip(leaves, found, strict=True):
            if moves is not None and name not in moves(number):
                continue
            grad = torch.zeros_like(params[name]) if grad is None else grad
            velocity[name] = momentum * velocity[name] + grad + decay * params[name]
            params[name] = params[name] - lr * velocity[name]
    return params


def labels_loss(run: TinyRun, client: int) -> Loss:
    """Cross-entropy of the tiny perceptron on a client's batch."""
    x, y = samples(run, client)
    return lambda p, index: F.cross_entropy(forward(p, x[index]), y[index])


def features(params: Params, x: Tensor) -> Tensor:
    """The hidden layer of the tiny perceptron."""
    (w,) = (p for n, p in params.items() if p.dim() == 2 and n.startswith("neck"))
    (b,) = (p for n, p in params.items() if p.dim() == 1 and n.startswith("neck"))
    return torch.relu(x.flatten(1) @ w.T + b)


def tree_of(params: Params, prefix: str) -> Params:
    """The leaves under `prefix`, without it."""
    return {n[len(prefix) :]: p for n, p in params.items() if n.startswith(prefix)}


def prefixed(prefix: str, params: Params) -> Params:
    """The leaves with a prefix."""
    return {prefix + n: p for n, p in params.items()}


def processes_agree(
    factory: Callable[..., Any], settings: dict[str, Any] | None = None, rounds: int = 2, **options: Any
) -> bool:
    """Whether forked workers give the same bits as the plain loop, memory included."""
    options.setdefault("sampler", Given(*COHORTS))
    plain = make(factory, settings, **options).rounds(rounds)
    forked = make(factory, settings, executor=partial(Processes, workers=2), **options)
    try:
        forked.rounds(rounds)
    finally:
        forked.close()
    held = {k: plain.store.get(k) or {} for k in plain.store.clients()}
    return (
        equal_trees(plain.state, forked.state)
        and plain.store.clients() == forked.store.clients()
        and all(equal_trees(held[k], forked.store.get(k) or {}) for k in held)
    )
