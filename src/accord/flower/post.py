"""Letters to sites and their answers, over Flower's grid, whatever numbers the sites' nodes have at the moment.

Nodes come, go, and come back under other numbers. `Post` says hello to every node it has not met, lets in those on the
roster, and knows for each site which node it is now. Messages are pushed and pulled here with a short pause of our own:
Flower's `send_and_receive` looks for answers every three seconds only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from flwr.app import Message

from accord.errors import DataError
from accord.flower import protocol
from accord.flower.bounds import LARGER
from accord.flower.envelopes import Enclosures, message_to, opened
from accord.flower.facts import SiteFacts
from accord.flower.protocol import HELLO, Letter, read_header

log = logging.getLogger("accord.flower")

POLL = 0.1  # seconds between two looks for answers, at least
LOOK = 1.0  # seconds between two looks for nodes
HELLO_AGAIN = 30.0  # seconds after which a node that said nothing is greeted once more
GONE = {3, 4, 5, 8}  # Flower's errors that say a message or its answer was lost on the way: it is sent again
WHO = "the roster"


class Grid(Protocol):
    """What is used of Flower's grid."""

    def get_nodes(self) -> Iterable[Any]:
        """Nodes that are connected: `node_id` and `public_key` of each."""
        ...

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send; a number for each."""
        ...

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Answers that have come."""
        ...


@dataclass(frozen=True)
class Hello:
    """What a node said of itself."""

    node: int
    site: str
    mark: str
    facts: SiteFacts
    allows: Mapping[str, Any]
    key: bytes = b""  # the public key Flower knows the node by; nothing: it asks nodes for none


@dataclass(frozen=True)
class Arrived:
    """An answer to a letter; `lost` where Flower says that there will be none."""

    ticket: str
    node: int
    header: str = ""
    enclosures: Mapping[str, bytes] | None = None
    problem: str = ""  # why it cannot be read
    lost: bool = False


class Post:
    """The server's side of the wire."""

    def __init__(self, grid: Grid, run: str, *, ttl: float, largest: int, now: Callable[[], float] = time.monotonic):
        self.grid, self.run, self.ttl, self.largest, self.now = grid, run, ttl, largest, now
        self.online: set[int] = set()
        self.nodes: dict[str, int] = {}  # by site, where it was met
        self._greeted: dict[str, tuple[int, float]] = {}  # hello's number -> node, when
        self._met: dict[int, Hello] = {}
        self._refused: dict[int, str] = {}
        self._looked = -LOOK
        self._one_by_one = False
        self._keys: dict[int, bytes] = {}

    def node_of(self, site: str) -> int | None:
        """The node a site is now, if it is connected."""
        node = self.nodes.get(site)
        return node if node in self.online else None

    def send(self, kind: str, letters: Mapping[int, Letter], group: str, shared: Enclosures) -> dict[int, str]:
        """Letters by node; the ticket of each, by node."""
        if not letters:
            return {}
        messages = [message_to(node, kind, letter, self.ttl, group, shared) for node, letter in letters.items()]
        tickets = list(self.grid.push_messages(messages))
        return {node: ticket for node, ticket in zip(letters, tickets, strict=False) if ticket}

    def arrivals(self, tickets: Iterable[str], names: Iterable[str]) -> list[Arrived]:
        """Answers that have come since; each one is told once."""
        wanted = list(tickets)
        if not wanted:
            return []
        limits = dict.fromkeys(names, self.largest)
        if not self._one_by_one:
            try:
                return [self._arrived(message, limits) for message in self.grid.pull_messages(wanted)]
            except Exception as error:  # one of them cannot be put together, and Flower does not say which
                _check_connection(error)
                log.warning("answers are fetched one by one from now on, as one cannot be read: %s", error)
                self._one_by_one = True
        return [found for ticket in wanted for found in self._fetched(ticket, limits)]

    def _fetched(self, ticket: str, limits: Mapping[str, int]) -> list[Arrived]:
        """The answer to one message, if there is one."""
        try:
            return [self._arrived(message, limits) for message in self.grid.pull_messages([ticket])]
        except Exception as error:
            _check_connection(error)
            return [Arrived(ticket, 0, problem=f"it cannot be read: {error!r:.300}")]

    def _arrived(self, message: Message, limits: Mapping[str, int]) -> Arrived:
        about = message.metadata
        if message.has_error():
            code, reason = message.error.code, str(message.error.reason)[:500]
            return Arrived(
                about.reply_to_message_id,
                about.src_node_id,
                problem=f"Flower's error {code}: {reason}",
                lost=code in GONE and LARGER not in reason,
            )
        try:
            header, enclosures = opened(message.content, limits, "the answer")
        except DataError as error:
            return Arrived(about.reply_to_message_id, about.src_node_id, problem=str(error))
        return Arrived(about.reply_to_message_id, about.src_node_id, header, enclosures)

    def look(self, *, at_once: bool = False) -> list[Hello]:
        """See who is connected, greet those not met yet, hear their answers; those heard now."""
        if at_once or self.now() - self._looked >= LOOK:
            self._looked = self.now()
            self._keys = {int(node.node_id): bytes(node.public_key) for node in self.grid.get_nodes()}
            self.online = set(self._keys)
            self._greet()
        return [hello for hello in map(self._heard, self.arrivals(self._greeted, ())) if hello is not None]

    def _greet(self) -> None:
        waiting = dict(self._greeted.values())
        late = {node for node, since in waiting.items() if self.now() - since > HELLO_AGAIN}
        new = self.online - self._met.keys() - self._refused.keys() - (waiting.keys() - late)
        letter = Letter({"protocol": protocol.PROTOCOL, "run": self.run})
        for node, ticket in self.send(HELLO, dict.fromkeys(sorted(new), letter), WHO, Enclosures()).items():
            self._greeted[ticket] = node, self.now()

    def _heard(self, arrived: Arrived) -> Hello | None:
        node, _ = self._greeted.pop(arrived.ticket, (None, 0.0))
        if node is None or arrived.lost:
            return None  # heard before; or greeted again while it is connected
        try:
            if arrived.problem:
                raise DataError(arrived.problem)
            said = read_header(arrived.header, protocol.HELLO_SAID, "the hello's answer")
            protocol.check_protocol(said["protocol"], "the node")
            facts = SiteFacts.from_json(said["facts"], f"site {said['site']!r}")
        except DataError as error:
            self.refuse(node, str(error))
            return None
        hello = Hello(node, said["site"], said["mark"], facts, said["allows"], self._keys.get(node, b""))
        self._met[node] = hello
        return hello

    @property
    def silent(self) -> set[int]:
        """Connected nodes that have not said who they are."""
        return self.online - self._met.keys() - self._refused.keys()

    def refuse(self, node: int, why: str) -> None:
        """Leave a node out of this run."""
        if node not in self._refused:
            log.warning("node %d is not let in: %s", node, why)
        self._refused[node] = why

    def settle(self, hello: Hello) -> None:
        """This node is that site, from now on."""
        before = self.nodes.get(hello.site)
        if before != hello.node:
            log.info(
                "site %r is node %d%s", hello.site, hello.node, "" if before is None else f", it was node {before}"
            )
        self.nodes[hello.site] = hello.node


def _check_connection(error: Exception) -> None:
    """What is wrong with the line to the SuperLink is no answer's fault: the run stops here, and can go on."""
    if type(error).__module__.partition(".")[0] in ("httpx", "httpcore", "grpc"):
        raise error


def pause(waited: float = 0.0, usual: float = 0.0) -> None:
    """Between two looks, each of which costs the SuperLink milliseconds: a tenth of the time waited so far.

    Before half of the `usual` time has passed nobody is expected.
    """
    time.sleep(min(LOOK, max(POLL, waited / 10, usual / 2 - waited)))
