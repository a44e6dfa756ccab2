"""One gradient for a stack of clients: `torch.vmap` over their objectives, traced once and compiled.

K clients' values lie in one tensor each, [K, ...]. The trace is a flat list of torch's own operators, forward and
backward together, so the compiler fuses across all clients and has no Python left to understand. What it makes is
cached on disk by torch: a second run of the same task starts faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeGuard

import torch
from torch import Tensor

from accord.core.task import LocalTraining, gradients, trained
from accord.core.tensors import Trees
from accord.core.types import Batch, Carry, ClientData, Job
from accord.errors import ConfigError

Given = dict[str, Any]  # private, memory and info of a `Job`
Flat = Sequence[Tensor]
Found = list[Tensor]


class StackError(Exception):
    """A task whose clients cannot be stacked."""


def to_be_stacked(task: object) -> TypeGuard[LocalTraining]:
    """Whether it was asked for, of a task that trains."""
    return isinstance(task, LocalTraining) and task.model.compiled


def apart(task: LocalTraining) -> str:
    """Why stacking its clients is not even tried, or nothing."""
    alone = [part.name for part in task.parts if not part.stacks]
    if alone:
        return f"its part {alone[0]} does not allow it"
    if task.private is not None:
        return "every sample's gradient is clipped by itself (privacy.name = sample)"
    return "it has a step of its own" if task.has_own("step", "objective") else ""


class StackedStep:
    """The gradients of all clients' objectives; where nothing but an optimizer follows, its step as well."""

    def __init__(self, task: LocalTraining, data: ClientData) -> None:
        self.task, self.data = task, data
        self._made: dict[Any, Callable[..., Found]] = {}  # by shapes

    def __call__(self, shared: Trees, given: Given, carry: Carry, batch: Batch) -> tuple[Trees, Found]:
        """Everything but `shared` is stacked. Gives gradients and what the metrics grow by, if they remain to be used.

        Writes the buffers in `carry`.
        """
        common, commons = _flat(shared)
        mine, stacked = _flat({"given": given, "carry": carry, "batch": batch._asdict()})
        key = tuple((t.shape, t.stride(), t.dtype) for t in (*commons, *stacked))
        if key in self._made:
            tensors = self._made[key](*commons, *stacked)
        else:
            with _stack_errors():
                made = self._compile(common, mine, commons, stacked)
                tensors = made(*commons, *stacked)
            self._made[key] = made
        if not tensors:
            return {}, []
        grads = iter(tensors[:-2])
        return {tree: {name: next(grads) for name in named} for tree, named in carry["active"].items()}, tensors[-2:]

    def _compile(self, common: Any, mine: Any, commons: Flat, stacked: Flat) -> Callable[..., Found]:
        def function(*tensors: Tensor) -> Found:
            shared, values = _filled(common, tensors), list(tensors[len(commons) :])

            def client(values: Found) -> tuple[Job, Carry, Batch]:
                one = _filled(mine, values)
                return Job(shared, data=self.data, **one["given"]), one["carry"], Batch(**one["batch"])

            def objective(values: Found, leaves: Trees) -> tuple[Tensor, ...]:
                job, carry, batch = client(values)
                return self.task.objective(job, carry, leaves, batch)

            def move(values: Found, grads: Trees, sums: Found) -> Found:
                self.task.move(*client(values), grads, sums)
                return sums

            with torch.enable_grad():
                leaves = trained(_filled(mine, values)["carry"])
                loss, *sums = torch.vmap(objective, randomness="different")(values, leaves)
                grads = gradients(loss.sum(), leaves)
            if self.task.moves_in_stack:
                torch.vmap(move)(values, grads, sums)
                return []
            return [grad for tree in grads.values() for grad in tree.values()] + sums

        from torch.fx.experimental.proxy_tensor import make_fx  # with it comes symbolic algebra, 0.1 GiB

        with torch.random.fork_rng(devices=[stacked[0].device] if stacked[0].is_cuda else []):
            graph = make_fx(function)(*(t.clone() for t in (*commons, *stacked)))
        used = _without_idle_inputs(graph)
        made = compiled(graph)
        return lambda *tensors: made(*(tensors[place] for place in used))


def _without_idle_inputs(graph: Any) -> list[int]:
    """Which inputs the graph reads or writes; the others are taken from it.

    What a client keeps for its end is no concern of its steps, and steps that differ in no more than that are one to
    the compiler, which has them in its cache.
    """
    inputs = graph.graph.find_nodes(op="placeholder")
    used = [number for number, node in enumerate(inputs) if node.users]
    for node in inputs:
        if not node.users:
            graph.graph.erase_node(node)
    graph.recompile()
    return used


@contextmanager
def _stack_errors() -> Iterator[None]:
    """Whatever goes wrong where a step is traced and compiled is a reason not to; nothing has been written yet."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise StackError((str(error).strip() or repr(error)).splitlines()[0]) from error


def compiled(graph: Any) -> Callable[..., Found]:
    """The same function, fused; dropout draws from torch's generator as it would without."""
    fused: Callable[..., Found] = torch.compile(graph, options={"fallback_random": True}, dynamic=False)
    return fused


def _flat(value: Any) -> tuple[Any, Found]:
    """The tensors of nested dictionaries, each once; and the dictionaries with their numbers in their place."""
    tensors: dict[int, tuple[int, Tensor]] = {}

    def number(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: number(inner) for name, inner in value.items()}
        if isinstance(value, Tensor):
            return _Place(tensors.setdefault(id(value), (len(tensors), value))[0])
        return value

    form = number(value)
    return form, [tensor for _, tensor in tensors.values()]


class _Place(int):
    """Where a tensor was."""


def _filled(form: Any, tensors: Flat) -> Any:
    if isinstance(form, dict):
        return {name: _filled(inner, tensors) for name, inner in form.items()}
    return tensors[form] if isinstance(form, _Place) else form


def check_compiler(device: torch.device) -> None:
    """Refuse before any work where it cannot help."""
    if device.type != "cuda":
        raise ConfigError("compile = true is for GPUs, where clients are trained side by side: set compile to false")
    try:
        torch.compile(_probe)(torch.zeros(8, device=device))
    except Exception as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise ConfigError(
            f"compile = true, but torch.compile does not work here ({reason}): install a C compiler "
            "and Triton, or set compile to false"
        ) from error


def _probe(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).relu()
