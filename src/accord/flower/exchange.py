"""An exchange over Flower: the server's door to nodes, with versions, a journal, a deadline, and checks of all answers.

A node that does not answer, answers nonsense or diverges is left out of the exchange, with the reason; it never ends
the run. Fewer answers than the minimum are waited for as long as it takes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from accord.client import Answer
from accord.core.tensors import Trees, finite, num_bytes
from accord.core.types import Replies, Result
from accord.engine.checkpoint import to_device
from accord.engine.exchange import Policy, collect
from accord.errors import DataError
from accord.flower import protocol
from accord.flower.envelopes import Enclosures
from accord.flower.expected import Form
from accord.flower.journal import Taken, request_digest
from accord.flower.post import Arrived, pause
from accord.flower.protocol import TASK, Letter, read_header
from accord.flower.sessions import Session
from accord.flower.versions import Memory
from accord.wire.codec import decode, encode
from accord.wire.format import Limits

log = logging.getLogger("accord.flower")

AGAIN = 3  # times a lost message is sent anew to a node that stays connected
REMIND = 60.0  # seconds between two lines in the log about who is waited for


@dataclass
class _Errand:
    """One client's part of an exchange."""

    client: int
    site: str
    private: bytes | None
    node: int | None = None  # whom it was sent to
    ticket: str = ""  # of the message that is on its way
    losses: int = 0
    memory: Memory | None = None


@dataclass(frozen=True)
class Manner:
    """How an exchange is made."""

    kind: str = "round"  # start, round, judge, end
    keeps: bool = True  # clients keep what they remember
    sends: bool = True  # they send their reply, not only their metrics
    waits: bool = True  # for those that are not connected


@dataclass
class FlowerExchange:
    """An `Exchange`; one is made per round, so its counters are the round's."""

    session: Session
    round: int
    lr: float
    manner: Manner = field(default_factory=Manner)
    bytes_up: int = 0
    bytes_down: int = 0
    missing: dict[int, str] = field(default_factory=dict)
    _exchanges: int = 0

    def __call__(
        self, task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees] | None = None
    ) -> Replies:
        """Ask `clients`, or find what they answered before the server was stopped."""
        asked, private = sorted(clients), private or {}
        alone = {client: encode(private[client]) for client in asked if client in private}
        common = encode(shared)
        digest = request_digest(
            task, asked, self.round, self.lr, {"shared": common, **{str(c): b for c, b in alone.items()}}
        )
        key = (self.label, self.manner.kind, self._exchanges)
        taken = self.session.journal.find(key, digest)
        if taken is None:
            forms = {c: self.session.expected.form(task, self.round, shared, private.get(c, {})) for c in asked}
            sizes = {client: num_bytes(private[client]) for client in alone}
            taken = _Asking(self, task, asked, common, alone, forms, shared, sizes).done()
            self.session.journal.keep(key, digest, taken)
        replies = self._take(task, asked, taken)
        return self.session.filters.together(task, shared, replies, self.session.key, self.round)

    @property
    def label(self) -> int:
        """The round as versions count it: 0 before the first."""
        return 0 if self.manner.kind == "start" else self.round + 1

    @property
    def version(self) -> tuple[int, int]:
        """Of the memory that clients make in the coming exchange."""
        return self.label, self._exchanges

    def _take(self, task: str, asked: Sequence[int], taken: Taken) -> Replies:
        """Count it, and go on from it."""
        self._exchanges += 1
        self.bytes_up += taken.bytes_up
        self.bytes_down += taken.bytes_down
        self.missing |= taken.missing
        device = self.session.device
        answers = [
            Answer(client, Result(to_device(r.reply, device), {}, to_device({"m": r.metrics}, device)["m"]))
            for client, r in taken.results.items()
        ]
        policy = Policy(self.session.minimum if self.manner.waits else 1, tolerate=1.0, diverged_ends=False)
        good, missing = collect(task, self.round, asked, answers, policy, taken.missing, self.session.roster.name_of)
        if self.manner.keeps:
            for client, memory in taken.memory.items():
                if memory is not None:
                    self.session.versions.advance(client, memory)
        ids = tuple(answer.client for answer in good)
        sizes = self.session.roster.sizes(self.round)
        results = tuple(answer.result for answer in good if answer.result is not None)
        return Replies(ids, results, torch.tensor(sizes[list(ids)]), missing)


class _Asking:
    """One exchange while it goes on."""

    def __init__(
        self,
        exchange: FlowerExchange,
        task: str,
        asked: Sequence[int],
        shared: bytes,
        private: Mapping[int, bytes],
        forms: Mapping[int, Form],
        trees: Trees,
        alone: Mapping[int, int],
    ) -> None:
        self.exchange, self.session, self.task, self.forms = exchange, exchange.session, task, forms
        self.shared, self.enclosures = shared, Enclosures()
        self.trees, self.alone = trees, alone
        enough, most = self.session.cohort
        self.enough = enough if exchange.manner.kind == "round" and enough < len(asked) <= most else len(asked)
        names = self.session.roster.name_of
        self.pending = {client: _Errand(client, names(client), private.get(client)) for client in asked}
        for errand in self.pending.values():
            errand.memory = self.session.versions.at(errand.client)
        self.asked = len(asked)
        self.results: dict[int, Result] = {}
        self.memory: dict[int, Memory | None] = {}
        self.missing: dict[int, str] = {}
        self.bytes_up = self.bytes_down = 0

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
            self._refusals()
            self._send()
            self._hear()
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
                pause()
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
        errands: dict[int, _Errand] = {}
        for errand in self.pending.values():
            node = self.session.post.node_of(errand.site)
            if node is None or (errand.ticket and errand.node == node) or not self.session.ready(errand.site):
                continue
            letters[node], errands[node] = self._letter(errand), errand
        for node, ticket in self.session.post.send(TASK, letters, str(self.exchange.label), self.enclosures).items():
            errand = errands[node]
            if errand.node is None:
                self.bytes_down += num_bytes(self.trees) + self.alone.get(errand.client, 0)
            errand.node, errand.ticket = node, ticket

    def _letter(self, errand: _Errand) -> Letter:
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

    def _heard(self, errand: _Errand, arrived: Arrived) -> None:
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

    def _check(self, errand: _Errand, said: Mapping[str, object]) -> None:
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

    def _result(self, errand: _Errand, enclosures: Mapping[str, bytes]) -> Result:
        limits = Limits(self.session.post.largest)
        if "metrics" not in enclosures or ("reply" in enclosures) != self.exchange.manner.sends:
            raise DataError(f"the answer encloses {', '.join(sorted(enclosures)) or 'nothing'}")
        trees, form = decode(enclosures["metrics"], limits=limits), self.forms[errand.client]
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

    def _drop(self, errand: _Errand, why: str) -> None:
        log.warning(
            "round %d, task %s: the answer of site %r (node %s) is dropped: %s",
            self.exchange.label, self.task, errand.site, errand.node, why,
        )  # fmt: skip
        self.missing[errand.client] = why
        del self.pending[errand.client]
