"""A run's dealings with its sites: who they are, who has joined, what they remember, how long they are waited for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from accord.core.keys import Key
from accord.errors import DataError, RunError
from accord.filters import Filters
from accord.flower import protocol
from accord.flower.envelopes import Enclosures
from accord.flower.expected import Expected
from accord.flower.journal import Journal
from accord.flower.keys import Keys
from accord.flower.post import Arrived, Hello, Post, pause
from accord.flower.protocol import JOIN, PROTOCOL, Letter, read_header
from accord.flower.roster import Roster
from accord.flower.versions import Versions
from accord.pace.clock import Clock

log = logging.getLogger("accord.flower")


@dataclass(frozen=True)
class Invitation:
    """What every site is told of a run, beside its own number and key."""

    hash: str
    settings: Mapping[str, Any]
    facts: Mapping[str, Any]
    judges: bool
    initial: bytes

    def letter(self, run: str, client: int, key: Key) -> Letter:
        """For one of them."""
        header = {
            "protocol": PROTOCOL,
            "run": run,
            "hash": self.hash,
            "client": client,
            "key": f"{key.client(client).seed:x}",
            "settings": self.settings,
            "facts": self.facts,
            "judges": self.judges,
        }
        return Letter(header, {"initial": self.initial})


@dataclass
class Session:
    """All of it; exchanges come and go."""

    post: Post
    roster: Roster
    versions: Versions
    journal: Journal
    expected: Expected
    filters: Filters
    invitation: Invitation
    key: Key
    keys: Keys
    device: torch.device
    minimum: int
    cohort: tuple[int, int]  # how many make a round, and how many are asked
    deadline: float
    patience: float  # below 0: until the deadline
    told: Callable[[int, int], None] = lambda done, total: None
    note: Callable[[str], None] = lambda text: None
    came: Callable[[], None] = lambda: None  # a site that was named has come late
    now: Callable[[], float] = time.monotonic
    clock: Clock = field(default_factory=lambda: Clock(Key(0)))  # who is at work on what; its time stands still
    usual: dict[str, float] = field(default_factory=dict)  # seconds the last exchange took, by task
    joined: set[str] = field(default_factory=set)
    objections: dict[str, str] = field(default_factory=dict)  # why a site does not take part
    _asked: dict[str, tuple[str, int]] = field(default_factory=dict)  # an invitation's ticket -> site, node
    _enclosures: Enclosures = field(default_factory=Enclosures)

    @property
    def hash(self) -> str:
        """Of the configuration."""
        return self.invitation.hash

    def look(self, round: int, *, at_once: bool = False) -> None:
        """See who is there, let them in or not, hear those that were invited."""
        for hello in self.post.look(at_once=at_once):
            self.meet(hello, round)
        for arrived in self.post.arrivals(list(self._asked), ()):
            self._heard(arrived)

    def meet(self, hello: Hello, round: int) -> None:
        """A node has said who it is."""
        why = self.keys.refusal(hello.site, hello.key) or self.roster.refusal(hello.site, hello.mark, hello.facts)
        if why:
            self.post.refuse(hello.node, why)
            return
        if self.roster.admit(hello.site, hello.mark, hello.facts, round + 1):
            log.info("site %r has come, and takes part from round %d", hello.site, round + 2)
            self.came()
        self.objections.pop(hello.site, None)  # its owner may have changed his mind
        self.post.settle(hello)

    def ready(self, site: str) -> bool:
        """Whether it has joined; it is invited if it has not been."""
        if site not in self.joined and site not in {invited for invited, _ in self._asked.values()}:
            self._invite(site)
        return site in self.joined

    def invite_again(self, site: str) -> None:
        """It knows nothing of the run any more."""
        self.joined.discard(site)

    def _invite(self, site: str) -> None:
        node = self.post.node_of(site)
        if node is None:
            return
        letter = self.invitation.letter(self.roster.run, self.roster.number(site), self.key)
        for ticket in self.post.send(JOIN, {node: letter}, "the roster", self._enclosures).values():
            self._asked[ticket] = site, node

    def _heard(self, arrived: Arrived) -> None:
        site, node = self._asked.pop(arrived.ticket, ("", 0))
        if not site or arrived.lost:
            return  # heard before; or invited again when it is next asked
        try:
            if arrived.problem:
                raise DataError(arrived.problem)
            said = read_header(arrived.header, protocol.JOIN_SAID, "the answer to the invitation")
            if (said["run"], said["client"]) != (self.roster.run, self.roster.number(site)):
                raise DataError("it answers for another run or client")
            if said["status"] != "done":
                raise DataError(said["why"] or said["status"])
        except DataError as error:
            log.warning("site %r (node %d) does not take part: %s", site, node, error)
            self.objections[site] = str(error)
            return
        self.joined.add(site)

    def gather(self, seconds: float) -> None:
        """Invite all that are there, and hear them; RunError if nobody joins."""
        until = self.now() + seconds
        here = [entry.site for entry in self.roster.entries if entry.facts is not None]
        while self.now() < until:
            self.look(-1)
            open_ones = [s for s in here if s not in self.objections and not self.ready(s) and self.post.node_of(s)]
            if not open_ones and (self.joined or self.objections):
                break
            pause()
        if not self.joined and self.objections:
            reasons = "\n".join(f"{site!r}: {why}" for site, why in sorted(self.objections.items()))
            raise RunError(f"no site takes part in this run:\n{reasons}")
