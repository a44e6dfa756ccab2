"""Optimizers without hidden state, and learning-rate schedules.

`update` overwrites the parameters and the optimizer state it is given: both belong to the task that made them (see
`core/task.py`). The learning rate is a tensor, so that a captured step can be replayed with another one.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from accord.core.tensors import Tree, Trees, is_stacked, zeros_like
from accord.errors import ConfigError
from accord.settings import Registry


class Optimizer(Protocol):
    """`init` makes the state for a set of parameters; `update` takes one step in place."""

    stacks: ClassVar[bool]  # whether it is written with operators that torch.vmap knows

    @property
    def weight_decay(self) -> float:
        """What of the weights is added to their gradient."""
        ...

    def init(self, params: Tree) -> Trees:
        """Fresh state."""
        ...

    def update(self, params: Tree, grads: Tree, state: Trees, lr: Tensor) -> None:
        """One step."""
        ...


# Made from those of the local settings they name: momentum, weight_decay, betas, ...
OPTIMIZERS: Registry[Callable[..., Optimizer]] = Registry("optimizer")


@OPTIMIZERS.add("sgd")
@dataclass(frozen=True)
class SGD:
    """w <- w - lr * v with v <- momentum * v + (g + weight_decay * w); v starts as the first gradient."""

    stacks: ClassVar[bool] = True

    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        if self.nesterov and self.momentum == 0:
            raise ConfigError("local.nesterov needs momentum: set local.momentum above 0 or nesterov to false")

    def init(self, params: Tree) -> Trees:
        """Zero velocity, if any is needed: momentum * 0 + g is the first gradient itself."""
        return {"velocity": zeros_like(params)} if self.momentum else {}

    def update(self, params: Tree, grads: Tree, state: Trees, lr: Tensor) -> None:
        """One step in place; `addcmul` reads the learning rate as a tensor and allocates nothing."""
        if params and self._fuses(lr):
            self._fused(params, grads, state, lr)
            return
        for name, param in params.items():
            grad = grads[name]
            if self.weight_decay:
                grad = grad.add(param, alpha=self.weight_decay)
            if self.momentum:
                velocity = state["velocity"][name].mul_(self.momentum).add_(grad)
                grad = grad.add(velocity, alpha=self.momentum) if self.nesterov else velocity
            if is_stacked(param):
                param.sub_(grad * lr)  # torch.vmap has no rule for the other
            else:
                param.addcmul_(grad, lr, value=-1)

    def effective_steps(self, steps: Tensor) -> Tensor:
        """How many times the rate `steps` steps along one constant gradient move: the sum of all its weights."""
        rho = self.momentum
        weights = (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
        return steps + rho * weights if self.nesterov else weights

    def _fuses(self, lr: Tensor) -> bool:
        """Where torch's fused kernel is the faster one; on a GPU it reads no other rate than single precision."""
        if is_stacked(lr):
            return False  # the compiler will fuse it
        if lr.device.type == "cuda":
            return lr.dtype == torch.float32
        return lr.device.type == "cpu" and bool(self.momentum or self.weight_decay)

    def _fused(self, params: Tree, grads: Tree, state: Trees, lr: Tensor) -> None:
        """The same step in one pass over all tensors: on a GPU one kernel, on a CPU no intermediate results."""
        names = list(params)
        torch._fused_sgd_(
            [params[name] for name in names],
            [_laid_out_as(grads[name], params[name]) for name in names],
            [state["velocity"][name] for name in names] if self.momentum else [],
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            lr=lr,
            dampening=0.0,
            nesterov=self.nesterov,
            maximize=False,
            is_first_step=False,
        )


def _laid_out_as(tensor: Tensor, other: Tensor) -> Tensor:
    """The fused kernel wants equal strides, also along dimensions of length 1, where they mean nothing."""
    if tensor.stride() == other.stride():
        return tensor
    places = zip(tensor.shape, tensor.stride(), other.stride(), strict=True)
    if all(length == 1 or mine == theirs for length, mine, theirs in places):
        return tensor.as_strided(other.shape, other.stride())
    return torch.empty_like(other).copy_(tensor)


@OPTIMIZERS.add("adam")
@dataclass(frozen=True)
class Adam:
    """Adam; with `decoupled` weight decay it is AdamW."""

    stacks: ClassVar[bool] = False

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False

    def init(self, params: Tree) -> Trees:
        """Zero moments and one step counter."""
        count = torch.zeros((), dtype=next(iter(params.values())).dtype) if params else torch.zeros(())
        if params:
            count = count.to(next(iter(params.values())).device)
        return {"first": zeros_like(params), "second": zeros_like(params), "count": {"steps": count}}

    def update(self, params: Tree, grads: Tree, state: Trees, lr: Tensor) -> None:
        """One step in place with bias correction."""
        steps = state["count"]["steps"].add_(1)
        correction1, correction2 = 1 - self.betas[0] ** steps, 1 - self.betas[1] ** steps
        for name, param in params.items():
            grad = grads[name]
            if self.weight_decay and self.decoupled:
                param.addcmul_(param.clone(), lr, value=-self.weight_decay)
            elif self.weight_decay:
                grad = grad.add(param, alpha=self.weight_decay)
            first = state["first"][name].lerp_(grad, 1 - self.betas[0])
            second = state["second"][name].mul_(self.betas[1]).addcmul_(grad, grad, value=1 - self.betas[1])
            denominator = (second / correction2).sqrt_().add_(self.eps)
            param.addcmul_(first / denominator, lr / correction1, value=-1)


@OPTIMIZERS.add("adamw")
def adamw(betas: tuple[float, float], eps: float, weight_decay: float) -> Adam:
    """Adam with decoupled weight decay."""
    return Adam(betas, eps, weight_decay, decoupled=True)


def in_one(states: Mapping[str, Trees]) -> Tree:
    """The optimizer states of several trees as one tree: `model.velocity.conv1.weight`."""
    return {
        f"{tree}.{kind}.{name}": tensor
        for tree, state in states.items()
        for kind, tensors in state.items()
        for name, tensor in tensors.items()
    }


def clip_by_norm(grads: Tree, limit: float) -> Tree:
    """Scaled down to a global norm of at most `limit`; the direction is kept."""
    norm = torch.stack([g.detach().pow(2).sum() for g in grads.values()]).sum().sqrt()
    factor = (limit / (norm + 1e-12)).clamp(max=1.0)
    return {name: g * factor for name, g in grads.items()}


@dataclass(frozen=True)
class Schedule:
    """The learning rate of a round; constant within it. `kind` is one of SCHEDULES."""

    lr: float
    kind: str = "constant"
    decay: float = 1.0
    every: int = 1
    min_lr: float = 0.0
    rounds: int = 1

    def at(self, round: int) -> float:
        """The rate in `round` (0 is the first)."""
        return self._rule(self, round)

    @cached_property
    def _rule(self) -> Callable[[Schedule, int], float]:
        return inspect.unwrap(SCHEDULES[self.kind])  # it has no settings that would be checked at every call


SCHEDULES: Registry[Callable[[Schedule, int], float]] = Registry("schedule")


@SCHEDULES.add("constant")
def constant(schedule: Schedule, round: int) -> float:
    """lr."""
    return schedule.lr


@SCHEDULES.add("exponential")
def exponential(schedule: Schedule, round: int) -> float:
    """lr * decay^round, but at least min_lr."""
    return max(schedule.lr * schedule.decay**round, schedule.min_lr)


@SCHEDULES.add("cosine")
def cosine(schedule: Schedule, round: int) -> float:
    """From lr to min_lr over all rounds."""
    share = min(round / max(schedule.rounds, 1), 1.0)
    return schedule.min_lr + (schedule.lr - schedule.min_lr) * 0.5 * (1 + math.cos(math.pi * share))


@SCHEDULES.add("step")
def step(schedule: Schedule, round: int) -> float:
    """lr * decay^(round // every), but at least min_lr."""
    return max(schedule.lr * schedule.decay ** (round // schedule.every), schedule.min_lr)
