"""What really travels: the first and the last round, with a single step per client, every tree on the door by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from accord.config import RunConfig
from accord.core.disclosure import Declared, Disclosure, disclosures, kind_of
from accord.core.sums import reasons_for_each
from accord.core.tensors import Trees, num_bytes
from accord.core.types import Exchange, Replies, Result
from accord.engine.federation import Federation
from accord.filters.changes import about

START, FIRST, LAST, JUDGED = "start", "first", "last", "judged"  # when an exchange was seen


@dataclass(frozen=True)
class Parcel:
    """One named tree on its way to or from one client."""

    when: str
    task: str
    direction: str  # "down" or "up"
    tree: str
    bytes: int
    kind: Disclosure | None = None  # of what leaves a client
    declared: bool = True  # whether the method says so; what it does not declare counts as the gravest
    passed_on: bool = False  # of what comes down: whether single clients' answers are in it, for others to see


@dataclass(eq=False)
class Traffic(list[Parcel]):
    """The parcels of one client; the numbers that go up beside them, by task; what they were counted with."""

    data: str
    clients: int
    numbers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    needs_each: list[str] = field(default_factory=list)  # why sums of the answers are not enough for the server
    filters: list[str] = field(default_factory=list)  # between the clients and the server, in words


class _Counting:
    """An exchange that notes what passes, for the first client of each call."""

    def __init__(self, inner: Exchange, phase: str, notes: _Notes) -> None:
        self.inner, self.phase, self.notes = inner, phase, notes

    def __call__(
        self, task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees] | None = None
    ) -> Replies:
        replies = self.inner(task, clients, shared, private)
        received = {**shared, **(private or {}).get(replies.ids[0], {})}
        self.notes.down(self.phase, task, received)
        carried = getattr(self.inner, "carried", {}).get(replies.ids[0])  # as it lay on the wire
        self.notes.up(self.phase, task, received, replies.results[0], carried)
        return replies


class _Notes:
    """Trees by task, direction and name: when they passed, how large, and whether they hold one client's answer."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str, str], set[str]] = {}
        self.bytes: dict[tuple[str, str, str], int] = {}
        self.passed_on: set[tuple[str, str, str]] = set()
        self.numbers: dict[str, tuple[str, ...]] = {}
        self._answered: list[Tensor] = []

    def down(self, phase: str, task: str, trees: Trees) -> None:
        for key in self._note(phase, task, "down", trees):
            values = trees[key[2]].values()
            if any(_holds(value, answer) for value in values for answer in self._answered):
                self.passed_on.add(key)

    def up(self, phase: str, task: str, received: Trees, result: Result, carried: Trees | None) -> None:
        self._note(phase, task, "up", result.reply if carried is None else carried)
        for tree in result.reply:
            known = [tensor for named in received.values() for tensor in named.values()]
            new = (t for t in result.reply[tree].values() if t.numel() > 1 and not _among(t, known))
            self._answered.extend(new)
        self.numbers[task] = tuple(sorted(result.metrics))

    def _note(self, phase: str, task: str, direction: str, trees: Trees) -> list[tuple[str, str, str]]:
        keys = []
        for name in sorted(trees):
            key = task, direction, name
            if size := num_bytes({name: trees[name]}):
                self.seen.setdefault(key, set()).add(phase)
                self.bytes[key] = max(size, self.bytes.get(key, 0))
                keys.append(key)
        return keys

    def parcels(self, says: Mapping[str, Declared], rounds: int) -> Iterable[Parcel]:
        for (task, direction, tree), phases in self.seen.items():
            key, when = (task, direction, tree), _when(phases, rounds)
            if direction == "down":
                yield Parcel(when, *key, self.bytes[key], passed_on=key in self.passed_on)
            else:
                known = says[task]
                yield Parcel(when, *key, self.bytes[key], kind_of(known, about(tree)), declared=about(tree) in known)


def measure_traffic(config: RunConfig) -> Traffic:
    """The parcels of a client under this configuration; none where all data is pooled, as then nobody sends.

    Nothing is written, next to nothing is trained.
    """
    local, clients = replace(config.local, steps=1), replace(config.clients, drop_rate=0.0)
    config = replace(config, local=local, clients=clients, device="cpu", executor="sequential", compile=False)
    federation = Federation.build(config)
    algorithm, executor, notes = federation.algorithm, federation.executor(), _Notes()
    last = config.rounds - 1
    with federation.memory() as store:
        state = federation.first_state(_Counting(federation.exchange(executor, store, 0), START, notes))
        for round, phase in {0: FIRST, last: LAST}.items():
            exchange = _Counting(federation.exchange(executor, store, round), phase, notes)
            state, _ = algorithm.round(state, federation.world(round), exchange)
        if "evaluate" in algorithm.tasks:
            judging = _Counting(federation.exchange(executor, store, last), JUDGED, notes)
            judging("evaluate", federation.facts.members[:1], algorithm.judged(state))
    traffic = Traffic(federation.data.name, len(federation.data), notes.numbers, reasons_for_each(algorithm))
    traffic.filters += federation.filters.words()
    if not algorithm.pools_data:
        traffic.extend(notes.parcels(disclosures(algorithm), config.rounds))
    return traffic


def _when(phases: set[str], rounds: int) -> str:
    if phases == {START}:
        return "once"
    if phases == {JUDGED}:
        return "when judged"
    return "every round" if rounds == 1 or len(phases) > 1 else "some rounds"


def _among(tensor: Tensor, others: Iterable[Tensor]) -> bool:
    return any(tensor.shape == other.shape and torch.equal(tensor, other) for other in others)


def _holds(value: Tensor, answer: Tensor) -> bool:
    """Whether it is one client's answer, or a list in which that is one row, or some rows."""
    if value.shape == answer.shape:
        return torch.equal(value, answer)
    if value.dim() < 2 or answer.dim() == 0:
        return False
    rows = [answer] if value.shape[1:] == answer.shape else list(answer) if value.shape[1:] == answer.shape[1:] else []
    return bool(rows) and all(bool((value == row).flatten(1).all(1).any()) for row in rows)
