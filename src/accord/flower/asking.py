"""One message to several sites, from its sending to the last answer that is waited for."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from accord.core.tensors import Trees, finite, num_bytes
from accord.core.types import Result
from accord.engine.checkpoint import to_device
from accord.errors import DataError
from accord.flower import protocol
from accord.flower.envelopes import Enclosures
from accord.flower.expected import Form
from accord.flower.journal import Taken
from accord.flower.post import Arrived, pause
from accord.flower.protocol import TASK, Letter, read_header
from accord.flower.sessions import Session
from accord.flower.versions import Memory
from accord.wire.codec import decode, encode
from accord.wire.format import Limits

log = logging.getLogger("accord.flower")

AGAIN = 3  # times a lost message is sent anew to a node that stays connected
REMIND = 60.0  # seconds between two lines in the log about who is waited for


@dataclass(frozen=True)
class Manner:
    """How an exchange is made."""

    kind: str = "round"  # start, round, judge, end
    keeps: bool = True  # clients keep what they remember
    sends: bool = True  # they send their reply, not only their metrics
    waits: bool = True  # for those that are not connected


class Occasion(Protocol):
    """What a message belongs to."""

    session: Session
    round: int
    lr: float
    manner: Manner

    @property
    def label(self) -> int:
        """The round as versions count it."""
        ...

    @property
    def version(self) -> tuple[int, int]:
        """Of the memory that clients make."""
        ...


@dataclass
class Errand:
    """One client's part of it."""

    client: int
    site: str
    private: bytes | None
    size: int  # bytes of what it alone is sent
    form: Form
    memory: Memory | None
    node: int | None = None  # whom it was sent to
    ticket: str = ""  # of the message that is on its way
    losses: int = 0


class Asking:
    """While it goes on."""

    def __init__(self, exchange: Occasion, task: str, trees: Trees, shared: bytes) -> None:
        self.exchange, self.session, self.task = exchange, exchange.session, task
        self.trees, self.shared, self.enclosures = trees, shared, Enclosures()
        self.pending: dict[int, Errand] = {}
        self.asked = 0
        self.results: dict[int, Result] = {}
        self.memory: dict[int, Memory | None] = {}
        self.missing: dict[int, str] = {}
        self.bytes_up = self.bytes_down = 0

    def add(self, client: int, private: Trees | None) -> None:
        """One more site to ask."""
        form = self.session.expected.form(self.task, self.exchange.round, self.trees, private or {})
        alone = None if private is None else encode(private)
        memory, site = self.session.versions.at(client), self.session.roster.name_of(client)
        self.pending[client] = Errand(client, site, alone, num_bytes(private or {}), form, memory)
        self.asked += 1

    @property
    def enough(self) -> int:
        """Answers that make a round, where more are asked than are needed."""
        count, most = self.session.cohort
        return count if self.exchange.manner.kind == "round" and count < self.asked <= most else self.asked

    def step(self) -> None:
        """Send what is to be sent, hear what has come."""
        self._refusals()
        self._send()
        self._hear()

    def done(self) -> Taken:
        """Ask, and wait as the policy says."""
        session = self.session
        began, enough_since, reminded = session.now(), None, session.now()
        if not self.exchange.manner.waits:
            session.look(self.exchange.round, at_once=True)
            for client in [c for c, errand in self.pending.items() if session.post.node_of(errand.site) is None]:
                self.missing[client] = "not connected"
                del self.pending[client]
        while self.pending:
            session.look(self.exchange.round)
            self.step()
            waited = session.now() - began
            enough = len(self.results) >= max(1, min(session.minimum, self.asked))
            if enough and enough_since is None:
                enough_since = session.now()
            if enough and enough_since is not None and self._over(waited, session.now() - enough_since):
                break
            if len(self.results) >= self.enough:
                break
            if not self.exchange.manner.waits and waited > session.deadline:
                break
            if self.pending and session.now() - reminded > REMIND:
                reminded = session.now()
                log.info("round %d, task %s: waiting for %s", self.exchange.label, self.task, self._names())
            if self.pending:
                pause(waited, session.usual.get(self.task, 0.0))
        session.usual[self.task] = session.now() - began
        enough = len(self.results) >= self.enough
        for client in self.pending:
            self.missing[client] = "others were faster" if enough else "did not answer in time"
        if self.pending and not enough:
            log.warning("round %d, task %s goes on without %s", self.exchange.label, self.task, self._names())
        ordered = sorted(self.results)
        return Taken(
            {client: self.results[client] for client in ordered},
            {client: self.memory[client] for client in ordered},
            dict(sorted(self.missing.items())),
            self.bytes_up,
            self.bytes_down,
        )

    def _names(self) -> str:
        return ", ".join(repr(errand.site) for errand in self.pending.values())

    def _over(self, waited: float, with_enough: float) -> bool:
        patience = self.session.patience
        return waited > self.session.deadline or 0 <= patience < with_enough

    def _refusals(self) -> None:
        """Sites whose owners have not agreed to the method are not asked."""
        for errand in list(self.pending.values()):
            if why := self.session.objections.get(errand.site):
                self._drop(errand, why)

    def _send(self) -> None:
        """To every site that is connected and has no message on its way; sites under a new number get theirs again."""
        letters: dict[int, Letter] = {}
        errands: dict[int, Errand] = {}
        for errand in self.pending.values():
            node = self.session.post.node_of(errand.site)
            if node is None or (errand.ticket and errand.node == node) or not self.session.ready(errand.site):
                continue
            letters[node], errands[node] = self._letter(errand), errand
        for node, ticket in self.session.post.send(TASK, letters, str(self.exchange.label), self.enclosures).items():
            errand = errands[node]
            if errand.node is None:
                self.bytes_down += num_bytes(self.trees) + errand.size
            errand.node, errand.ticket = node, ticket

    def _letter(self, errand: Errand) -> Letter:
        session, manner = self.session, self.exchange.manner
        memory = errand.memory
        header = {
            "run": session.roster.run,
            "hash": session.hash,
            "client": errand.client,
            "task": self.task,
            "round": self.exchange.round,
            "version": list(self.exchange.version),
            "base": None if memory is None else [list(memory[0]), memory[1]],
            "needed": [list(version) for version in session.versions.needed(errand.client)],
            "lr": self.exchange.lr,
            "keeps": manner.keeps,
            "sends": manner.sends,
        }
        enclosed = {"shared": self.shared} | ({"private": errand.private} if errand.private is not None else {})
        return Letter(header, enclosed)

    def _hear(self) -> None:
        on_way = {errand.ticket: errand for errand in self.pending.values() if errand.ticket}
        for arrived in self.session.post.arrivals(on_way, ("reply", "metrics")):
            errand = on_way.get(arrived.ticket)
            if errand is not None and errand.client in self.pending:
                self._heard(errand, arrived)
                self.session.told(len(self.results), self.asked)

    def _heard(self, errand: Errand, arrived: Arrived) -> None:
        """Take an answer, send the message again, or leave the client out with the reason."""
        errand.ticket = ""
        if arrived.lost:
            errand.losses += 1
            log.info("site %r: %s; it is asked again", errand.site, arrived.problem)
            if errand.losses <= AGAIN or self.session.post.node_of(errand.site) != errand.node:
                return
            self._drop(errand, arrived.problem)
            return
        try:
            if arrived.problem:
                raise DataError(arrived.problem)
            said = read_header(arrived.header, protocol.TASK_SAID, "the answer")
            if said["status"] == "unknown":
                self.session.invite_again(errand.site)
                return
            if said["status"] == "lost":
                log.warning("site %r begins anew, as a client that was never asked: %s", errand.site, said["why"])
                self.session.note(f"site {errand.site!r} lost its memory and began anew: {said['why']}")
                errand.memory = None
                return
            self._check(errand, said)
            if said["status"] != "done":
                raise DataError(said["why"] or said["status"])
            result = self._result(errand, arrived.enclosures or {})
        except DataError as error:
            self._drop(errand, str(error))
            return
        memory = said["memory"]
        self.memory[errand.client] = None if memory is None else ((memory[0][0], memory[0][1]), memory[1])
        self.results[errand.client] = result
        del self.pending[errand.client]

    def _check(self, errand: Errand, said: Mapping[str, object]) -> None:
        due = {
            "run": self.session.roster.run,
            "hash": self.session.hash,
            "client": errand.client,
            "task": self.task,
            "version": list(self.exchange.version),
        }
        for name, value in due.items():
            if said[name] != value:
                raise DataError(f"the answer's {name} is {said[name]!r}, not {value!r}")
        memory = said["memory"]
        if isinstance(memory, list) and (memory[0] != due["version"] or not self.exchange.manner.keeps):
            raise DataError("the answer tells of another version of its memory than it was asked for")

    def _result(self, errand: Errand, enclosures: Mapping[str, bytes]) -> Result:
        limits = Limits(self.session.post.largest)
        if "metrics" not in enclosures or ("reply" in enclosures) != self.exchange.manner.sends:
            raise DataError(f"the answer encloses {', '.join(sorted(enclosures)) or 'nothing'}")
        trees, form = decode(enclosures["metrics"], limits=limits), errand.form
        metrics = trees.get("metrics", {})
        if list(trees) != ["metrics"] or set(metrics) - form.metrics:
            raise DataError(f"the answer tells {', '.join(sorted(metrics))[:200]}")
        if any(value.dim() or not bool(torch.isfinite(value)) for value in metrics.values()):
            raise DataError("the answer's metrics are no finite numbers")
        if not self.exchange.manner.sends:
            return Result({}, {}, metrics)
        carried = decode(enclosures["reply"], limits=limits, finite=True)
        reply = self._unpacked(carried)
        entry = self.session.roster.entries[errand.client]
        form.check(reply, entry.facts.samples if entry.facts is not None else 0)
        if not finite(reply):
            raise DataError("the answer holds values that are infinite or no numbers")
        self.bytes_up += num_bytes(carried)
        return Result(reply, {}, metrics)

    def _unpacked(self, carried: Trees) -> Trees:
        """The answer as the method knows it."""
        if not self.session.filters.on:
            return carried
        device = self.session.device
        try:
            return self.session.filters.incoming(self.task, self.trees, to_device(carried, device))
        except (RuntimeError, ValueError, IndexError, KeyError) as error:  # numbers that make no tensor
            raise DataError(f"the answer cannot be unpacked: {error}") from error

    def _drop(self, errand: Errand, why: str) -> None:
        log.warning(
            "round %d, task %s: the answer of site %r (node %s) is dropped: %s",
            self.exchange.label, self.task, errand.site, errand.node, why,
        )  # fmt: skip
        self.missing[errand.client] = why
        del self.pending[errand.client]
