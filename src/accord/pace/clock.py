"""The simulated time of a run, and who is at work in it: all of it is kept as trees, and goes on to the bit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from accord.core.keys import Key
from accord.core.tensors import Tree, Trees
from accord.pace.pace import Pace

LATE, NOT_WAITED_FOR = "late: ", "not waited for: "  # how the reasons begin why somebody is missing
TREE, WORK = "clock", "clock.work."  # names of trees: the time, and what clients are working on


@dataclass(frozen=True)
class Flight:
    """One client at work."""

    client: int
    begin: float
    end: float  # when it answers; where it is late, when it is given up
    late: float = 0.0  # seconds it would have taken, where that is too long


@dataclass(frozen=True)
class Message:
    """What clients were asked, and which of them are still at work on it."""

    task: str
    round: int
    lr: float
    version: int
    shared: Trees
    private: Mapping[int, Trees] = field(default_factory=dict)
    flights: dict[int, Flight] = field(default_factory=dict)  # by client


class Clock:
    """Seconds since the run began. Without a pace it stands still, and everybody's work takes one unit of time."""

    def __init__(self, key: Key, pace: Pace | None = None, kept: Mapping[str, Tree] | None = None) -> None:
        self.key, self.pace = key, pace
        self.now = 0.0
        self.answers: dict[str, int] = {}  # bytes of an answer, by task: the first one's
        self.messages: dict[str, Message] = {}  # by name, those somebody is at work on
        self._restore(kept or {})

    # who comes when ---------------------------------------------------------------------------------------------
    def seconds(self, task: str, client: int, down: int) -> float:
        """How long a client takes; `down` is what it is sent, in bytes."""
        return 1.0 if self.pace is None else self.pace.seconds(task, client, down, self.answers.get(task, 0))

    @property
    def deadline(self) -> float:
        """Seconds an exchange waits."""
        return self.pace.deadline if self.pace is not None and self.pace.deadline else math.inf

    def present(self, round: int, clients: Sequence[int]) -> list[int]:
        """Those of the clients that can be asked now."""
        if self.pace is None:
            return list(clients)
        mask = self.pace.present(round, self.now)
        return [client for client in clients if mask[client]]

    def wait(self) -> None:
        """Time passes in which nobody could be asked."""
        self.now += self.pace.wait if self.pace is not None else 0.0

    def tie(self, round: int, client: int) -> float:
        """Who comes first of those who come at the same time: by chance, not by number."""
        return float(self.key.at("tie", round, client).random())

    def gather(self, round: int, seconds: Mapping[int, float], most: int) -> tuple[list[int], dict[int, str]]:
        """The first `most` of those asked together, and why the others are not waited for; their time passes."""
        by_chance = {client: self.tie(round, client) for client in seconds} if most < len(seconds) else {}
        order = sorted(seconds, key=lambda client: (seconds[client], by_chance.get(client, 0.0), client))
        in_time = [client for client in order if seconds[client] <= self.deadline]
        taken, rest = in_time[:most], in_time[most:]
        last = seconds[taken[-1]] if taken else 0.0
        missing = {client: too_late(seconds[client], self.deadline) for client in order[len(in_time) :]}
        missing |= {client: f"{NOT_WAITED_FOR}{seconds[client]:.4g} s, enough came in {last:.4g} s" for client in rest}
        enough = len(taken) == min(most, len(seconds))
        self.now += last if enough else self.deadline
        return sorted(taken), missing

    # who is at work ---------------------------------------------------------------------------------------------
    def at_work(self) -> set[int]:
        """The clients that have begun and not ended."""
        return {client for message in self.messages.values() for client in message.flights}

    def depart(self, name: str, message: Message, client: int, seconds: float) -> None:
        """A client begins on a message now."""
        late = seconds > self.deadline
        end = self.now + (self.deadline if late else seconds)
        message.flights[client] = Flight(client, self.now, end, seconds if late else 0.0)
        self.messages[name] = message

    def land(self) -> tuple[Message, Flight] | None:
        """The next one that comes to its end, at which time it is then; None where nobody is at work."""
        everybody = [(name, f) for name, message in self.messages.items() for f in message.flights.values()]
        if not everybody:
            return None
        first = min(flight.end for _, flight in everybody)
        together = [(name, flight) for name, flight in everybody if flight.end == first]
        name, flight = min(
            together, key=lambda one: (self.tie(self.messages[one[0]].round, one[1].client), one[1].client)
        )
        message = self.messages[name]
        del message.flights[flight.client]
        if not message.flights:
            del self.messages[name]
        self.now = max(self.now, flight.end)
        return message, flight

    # what is kept -----------------------------------------------------------------------------------------------
    def trees(self) -> Trees:
        """All of it; nothing where no time has passed and nobody is at work."""
        if not self.now and not self.messages and not self.answers:
            return {}
        sizes = {f"answer.{task}": torch.tensor(size) for task, size in sorted(self.answers.items())}
        trees: Trees = {TREE: {"now": torch.tensor(self.now, dtype=torch.float64), **sizes}}
        for name, message in sorted(self.messages.items()):
            trees |= _packed(WORK + name, message)
        return trees

    def _restore(self, kept: Mapping[str, Tree]) -> None:
        if TREE not in kept:
            return
        self.now = float(kept[TREE]["now"])
        sizes = {leaf.removeprefix("answer."): int(t) for leaf, t in kept[TREE].items() if leaf != "now"}
        self.answers.update(sizes)
        names = dict.fromkeys(name.removeprefix(WORK).split(".")[0] for name in kept if name.startswith(WORK))
        self.messages = {name: _unpacked(f"{WORK}{name}", kept) for name in names}


def too_late(seconds: float, deadline: float) -> str:
    """Why somebody is missing."""
    return f"{LATE}{seconds:.4g} s, the deadline was {deadline:.4g} s"


def without_clock(state: Mapping[str, Tree]) -> Trees:
    """The method's own trees of a state that was kept."""
    return {name: dict(tree) for name, tree in state.items() if name != TREE and not name.startswith(WORK)}


def _packed(name: str, message: Message) -> Trees:
    """A message and who works on it. `name` has no dots beyond its own, a task may have some: it is kept as text."""
    flights = [message.flights[client] for client in sorted(message.flights)]
    trees: Trees = {
        name: {
            "task": _text(message.task),
            "round": torch.tensor(message.round),
            "lr": torch.tensor(message.lr, dtype=torch.float64),
            "version": torch.tensor(message.version),
            "client": torch.tensor([flight.client for flight in flights]),
            "times": torch.tensor([(f.begin, f.end, f.late) for f in flights], dtype=torch.float64),
        }
    }
    trees |= {f"{name}.shared.{tree}": leaves for tree, leaves in message.shared.items()}
    for flight in flights:
        alone = message.private.get(flight.client, {})
        trees |= {f"{name}.private-{flight.client}.{tree}": leaves for tree, leaves in alone.items()}
    return trees


def _unpacked(name: str, kept: Mapping[str, Tree]) -> Message:
    tree = kept[name]
    clients = tree["client"].tolist()
    times = tree["times"].tolist()
    flights = {client: Flight(client, *each) for client, each in zip(clients, times, strict=True)}
    private = {client: _below(f"{name}.private-{client}.", kept) for client in clients}
    return Message(
        bytes(tree["task"].tolist()).decode(),
        int(tree["round"]),
        float(tree["lr"]),
        int(tree["version"]),
        _below(f"{name}.shared.", kept),
        {client: trees for client, trees in private.items() if trees},
        flights,
    )


def _below(prefix: str, kept: Mapping[str, Tree]) -> Trees:
    return {name.removeprefix(prefix): dict(tree) for name, tree in kept.items() if name.startswith(prefix)}


def _text(text: str) -> Tensor:
    return torch.from_numpy(np.frombuffer(text.encode(), np.uint8).copy())
