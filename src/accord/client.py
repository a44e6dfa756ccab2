"""One client runs one task: the code every executor, and a remote node, ends up in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from accord.core.keys import Key
from accord.core.task import Task, stream
from accord.core.tensors import Tree, Trees, finite
from accord.core.types import Batch, Carry, ClientData, Job, Result
from accord.data.federated import FederatedData
from accord.errors import DivergedError


@dataclass(frozen=True)
class Work:
    """One client's share of a request."""

    client: int
    private: Trees
    memory: Trees | None  # None: the client is seen for the first time


@dataclass(frozen=True)
class Sums:
    """Trees of which the server reads weighted means only, each with the weights, and how many clients make a block.

    Blocks are cut from the cohort in the order of client ids, so they do not depend on who trains them.
    """

    trees: Mapping[str, str]
    block: int

    def blocks(self, works: Sequence[Work]) -> list[list[Work]]:
        """The cohort, cut."""
        ordered = sorted(works, key=lambda work: work.client)
        return [ordered[first : first + self.block] for first in range(0, len(ordered), self.block)]


@dataclass(frozen=True)
class Request:
    """A named task for a cohort."""

    task: str
    round: int
    lr: float
    shared: Trees
    works: Sequence[Work]
    sums: Sums | None = None  # which answers may come as means of blocks of clients; executors may send them all


@dataclass(frozen=True)
class Answer:
    """A result, or the reason why there is none. `fatal` ends the run (diverged training)."""

    client: int
    result: Result | None
    error: str = ""
    fatal: bool = False


class Executor(Protocol):
    """Runs requests; the order of the answers is the executor's own business."""

    def run(self, request: Request) -> list[Answer]:
        """All answers."""
        ...

    def close(self) -> None:
        """Give back processes and memory."""
        ...


class Home(Protocol):
    """Where clients live, as far as running one of them goes. A node on a network is home to one client."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        ...

    def client_data(self, client: int) -> ClientData:
        """The client's own samples on the device."""
        ...

    def draws(self, client: int, task: str, round: int) -> Draws:
        """The client's random numbers."""
        ...


@dataclass(frozen=True)
class Draws:
    """A client's random numbers for one task in one round; each purpose has its own."""

    key: Key  # the client's own
    task: str
    round: int

    def order(self) -> np.random.Generator:
        """Which samples come in which batch."""
        return self.key.at(f"order.{self.task}", self.round)

    def noise(self) -> np.random.Generator:
        """What the parts ask for."""
        return self.key.at(f"noise.{self.task}", self.round)

    def filter(self, purpose: str) -> np.random.Generator:
        """What filters ask for (`accord.filters`)."""
        return self.key.at(f"filter.{purpose}.{self.task}", self.round)

    def torch_seed(self) -> int:
        """For torch's own generator (dropout)."""
        return self.key.number(f"torch.{self.task}", self.round)


@dataclass(frozen=True)
class Site:
    """Home to all clients of a simulation: their data, the run's key, the device."""

    data: FederatedData
    key: Key
    device: torch.device
    with_test: bool = False  # hand clients their own test data (personal accuracy)

    def draws(self, client: int, task: str, round: int) -> Draws:
        """By address, below the client's own key."""
        return Draws(self.key.client(client), task, round)

    def client_data(self, client: int) -> ClientData:
        """A client's own samples on the device."""
        x, y = self.data.client(client)
        test = self.data.client(client, "test") if self.with_test else (x[:0], y[:0])
        x, y, test_x, test_y = (t.to(self.device) for t in (x, y, *test))
        return ClientData(x, y, test_x, test_y, self.data.num_classes)


def run_client(
    site: Home,
    task: Task,
    request: Request,
    work: Work,
    epoch_end: Callable[[Job, Carry], None] | None = None,
) -> Result:
    """begin, the planned steps, finish. The same bits wherever it runs.

    `epoch_end` looks at the carry before the first step and after each epoch (plans by epochs only).
    """
    client, round = work.client, request.round
    data, draws = site.client_data(client), site.draws(client, stream(request.task, task), round)
    batches = task.plan.schedule(draws.order(), len(data.y))
    widest = max((len(batch) for batch in batches), default=0)
    drawn = task.noise(draws.noise(), len(batches), widest)
    noise = {name: as_tensor(values, site.device) for name, values in drawn.items()}
    info: Tree = {
        "client": torch.tensor(client),
        "round": torch.tensor(round),
        "examples": torch.tensor(len(data.y)),
        "steps": torch.tensor(float(len(batches))),
        "lr": torch.tensor(request.lr, dtype=torch.get_default_dtype()),
    }
    info = {name: value.to(site.device) for name, value in info.items()}
    job = Job(request.shared, work.private, work.memory or {}, info, data)
    if work.memory is None:
        job = job._replace(memory=task.first_memory(job))
    # Dropout draws from torch's own generator: seed it by address, and leave the caller's untouched.
    devices = [site.device] if site.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        seed_torch(draws.torch_seed(), site.device)
        carry = task.begin(job)
        per_epoch = max(len(batches) // max(task.plan.epochs, 1), 1)
        if epoch_end is not None:
            epoch_end(job, carry)
        for number, rows in enumerate(batches):
            index = torch.from_numpy(np.ascontiguousarray(rows)).to(site.device)
            batch = Batch(
                data.x.index_select(0, index),
                data.y.index_select(0, index),
                torch.ones(len(rows), dtype=info["lr"].dtype, device=site.device),
                index,
                {name: values[number] for name, values in noise.items()},
            )
            carry = task.step(job, carry, batch)
            if epoch_end is not None and (number + 1) % per_epoch == 0:
                epoch_end(job, carry)
        result = task.finish(job, carry)
    check_finite(result, round, client)
    return result


def seed_torch(seed: int, device: torch.device) -> None:
    """What `torch.manual_seed` does for this device alone: asking every other backend costs as much as a small step."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def as_tensor(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """Drawn numbers in the precision models are trained in."""
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    return tensor.to(device, torch.get_default_dtype() if tensor.is_floating_point() else tensor.dtype)


def check_finite(result: Result, round: int, client: int) -> None:
    """Stop at the client that diverged, instead of averaging its NaN into everyone's model."""
    metrics = {name: float(value) for name, value in result.metrics.items()}
    loss = metrics["loss"] / max(metrics["seen"], 1.0) if {"loss", "seen"} <= metrics.keys() else 0.0
    if np.isfinite(loss) and finite(result.reply) and finite(result.memory):
        return
    raise DivergedError(
        f"training diverged in round {round + 1} on client {client}: mean loss {loss:g}, "
        f"{'weights not finite' if np.isfinite(loss) else 'loss not finite'}. "
        "Lower local.lr, set local.clip (e.g. 10), or check the client's data."
    )
