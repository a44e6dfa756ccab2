"""Where a round's time goes. The engine knows nothing of this: its functions are wrapped while a profile is taken."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from accord.client import Site
from accord.config import RunConfig
from accord.core.model import Model
from accord.core.optim import SGD, Adam
from accord.data.federated import Dataset, FederatedData
from accord.engine.build import choose_device
from accord.engine.checkpoint import Checkpoints
from accord.engine.run import run
from accord.engine.store import ClientStore
from accord.errors import ConfigError
from accord.executors.sequential import Sequential
from accord.measures import Evaluator
from accord.observe import Observer

# What the clients do, and what the server does around it.
CLIENT = ("data", "forward", "backward", "update", "other")
PHASES = {
    "data": "gathering samples",
    "forward": "models, frozen ones too",
    "backward": "gradients",
    "update": "local optimizer",
    "other": "losses, batches, copies",
    "aggregate": "sampling, server update",
    "evaluate": "judging the model",
    "checkpoint": "saving the round",
    "engine": "logs, bookkeeping",
}
# Where each phase begins and ends.
POINTS: tuple[tuple[Any, str, str], ...] = (
    (Site, "client_data", "data"),
    *((Model, name, "forward") for name in ("train", "reference", "maps", "head")),
    (torch.autograd, "grad", "backward"),
    *((optimizer, "update", "update") for optimizer in (SGD, Adam)),
    (Sequential, "run", "other"),
    (Evaluator, "round", "evaluate"),
    *((owner, "save", "checkpoint") for owner in (Checkpoints, ClientStore)),
)


@dataclass(frozen=True)
class Profile:
    """Mean seconds of one round per phase."""

    seconds: Mapping[str, float]
    rounds: int

    @property
    def total(self) -> float:
        """Of a whole round."""
        return sum(self.seconds.values())


class Stopwatch:
    """Every moment belongs to one phase. A client's phases are told apart within a client only: a model that is run to
    be judged is a part of the evaluation."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.phase = device, "engine"
        self.reset()

    def reset(self) -> None:
        """Forget what was measured."""
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.last = time.perf_counter()

    def switch(self, phase: str) -> str:
        """Begin another phase; the one before it is returned."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now, before = time.perf_counter(), self.phase
        self.seconds[before] += now - self.last
        self.last, self.phase = now, phase
        return before

    def around(self, function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        """`function`, its time counted as `phase`'s."""

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            if phase in CLIENT[:-1] and self.phase != "other":
                return function(*arguments, **named)
            before = self.switch(phase)
            try:
                return function(*arguments, **named)
            finally:
                self.switch(before)

        return timed


@contextmanager
def watched(watch: Stopwatch) -> Iterator[None]:
    """All points wrapped; put back at the end."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in POINTS]
    try:
        for (owner, name, phase), (_, _, plain) in zip(POINTS, before, strict=True):
            setattr(owner, name, watch.around(plain, phase))
        yield
    finally:
        for owner, name, plain in before:
            setattr(owner, name, plain)


class _Enough(Exception):  # noqa: N818 - the profile is complete
    pass


class _Rounds(Observer):
    """Lets the first round pass, then counts to the last."""

    def __init__(self, watch: Stopwatch, last: int) -> None:
        self.watch, self.last = watch, last

    def phase(self, round: int, name: str) -> None:
        """The method's own round, on the server's side unless a client is at work."""
        self.watch.switch("aggregate" if name == "train" else "engine")

    def round_ended(self, round: int, record: Mapping[str, Any]) -> None:
        """Warm from here on, or done."""
        self.watch.switch("engine")
        if round == 1:
            self.watch.reset()
        if round == self.last:
            raise _Enough


def profile(
    config: RunConfig,
    rounds: int = 3,
    *,
    data: FederatedData | Dataset | None = None,
    model: nn.Module | None = None,
) -> Profile:
    """Seconds per phase of the second round and those after it, each of them evaluated and saved.

    Clients run one after another, whatever executor the configuration names. On a GPU every phase waits for the device,
    which adds up to more than a round otherwise takes.
    """
    if rounds < 1:
        raise ConfigError(f"rounds = {rounds}: a profile needs at least 1 round, after one to warm up")
    if config.rounds <= rounds:
        raise ConfigError(
            f"a profile of {rounds} rounds and one to warm up needs rounds = {rounds + 1} or more in the "
            f"configuration, which has {config.rounds}; raise it, or profile fewer"
        )
    watch = Stopwatch(choose_device(config.device))
    with tempfile.TemporaryDirectory(prefix="accord-profile-") as folder, watched(watch), suppress(_Enough):
        short = replace(
            config,
            executor="sequential",
            compile=False,  # which is for clients side by side
            out=folder,
            name="",
            evaluate=replace(config.evaluate, every=1),
            checkpoint=replace(config.checkpoint, every=1),
        )
        run(short, data=data, model=model, observers=[_Rounds(watch, rounds + 1)])
    return Profile({phase: seconds / rounds for phase, seconds in watch.seconds.items()}, rounds)
