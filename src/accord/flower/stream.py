"""Nodes as a stream of arrivals (`core.types.Streaming`): whoever is done first is first.

Who is at work on which message outlives the round and lies in the checkpoint, in the form a simulation has it. Who came
in which order is in the journal: a server that goes on has the same buffers. Work that had begun since is begun anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from accord.core.tensors import Trees
from accord.core.types import Began, Replies, Result
from accord.engine.exchange import EmptyRound
from accord.errors import RunError
from accord.flower.asking import Asking
from accord.flower.exchange import FlowerExchange
from accord.flower.journal import Taken, request_digest
from accord.flower.post import pause
from accord.flower.versions import Memory
from accord.pace.clock import Message
from accord.wire.codec import encode

KIND = "stream"  # of the journal's entries


@dataclass
class StreamingNodes(FlowerExchange):
    """A `FlowerExchange` that is `Streaming` too."""

    streams: dict[str, Asking] = field(default_factory=dict)  # of this process, by the message's name
    _queue: list[tuple[str, Message, int]] = field(default_factory=list)
    _slots: int = 0
    _calls: int = 0
    _arrived: int = 0
    _ended: set[int] = field(default_factory=set)  # clients that came to an end in this round
    _came: dict[int, Began] = field(default_factory=dict)  # and what they began from

    def begin(
        self,
        task: str,
        clients: Sequence[int],
        shared: Trees,
        private: Mapping[int, Trees] | None = None,
        *,
        version: int = 0,
        slots: int = 0,
    ) -> None:
        """They wait here, and begin when answers are wanted."""
        if self.session.filters.central:
            raise RunError("central privacy needs the answers of a round together: use privacy.name = 'local'")
        name = f"{self.round}-{self._exchanges}"
        self._exchanges += 1  # the version of the memory that is made of this message
        message = Message(task, self.round, self.lr, version, shared, private or {})
        self._queue += [(name, message, client) for client in clients]
        self._slots = slots

    def arrivals(self, count: int) -> Replies:
        """Those who come first; fewer where nobody else is at work."""
        key = (self.label, KIND, self._calls)
        digest = request_digest("arrivals", [count], self.round, self.lr, {})
        self._calls += 1
        taken = self.session.journal.find(key, digest)
        if taken is None:
            taken = self._waited(count)
            self.session.journal.keep(key, digest, taken)
        else:
            self._again(taken)
        return self._accepted(taken, count)

    def _waited(self, count: int) -> Taken:
        """Have clients begin, and wait for `count` of them."""
        session, begun = self.session, list[tuple[int, str]]()
        results: dict[int, Result] = {}
        memory: dict[int, Memory | None] = {}
        missing: dict[int, str] = {}
        up = down = 0
        since: dict[int, float] = {}
        while len(results) < count:
            session.look(self.round)
            begun += self._fill()
            if not session.clock.at_work() and not self._hopeful():
                break
            for name, asking in list(self._asked().items()):
                asking.step()
                self._give_up(asking, since)
                taken = list(asking.results)[: count - len(results)]  # others wait for the next buffer
                for client in taken:
                    results[client], memory[client] = asking.results.pop(client), asking.memory.pop(client)
                self._land([*taken, *asking.missing], session.clock.messages[name])
                missing |= asking.missing
                asking.missing = {}
                up, down = up + asking.bytes_up, down + asking.bytes_down
                asking.bytes_up = asking.bytes_down = 0
            if len(results) < count:
                pause()
        return Taken(dict(sorted(results.items())), memory, missing, up, down, begun)

    def _land(self, clients: Sequence[int], message: Message) -> None:
        """They are at work no longer."""
        for client in clients:
            self._ended.add(client)
            if message.flights.pop(client, None) is not None:
                self._came[client] = Began(message.version, message.shared)

    def _hopeful(self) -> bool:
        """Whether somebody who waits may begin yet, once connected."""
        objections, names = self.session.objections, self.session.roster.name_of
        return any(client not in self._ended and names(client) not in objections for _, _, client in self._queue)

    def _give_up(self, asking: Asking, since: dict[int, float]) -> None:
        """A place that is taken by somebody who does not come is given to another."""
        now = self.session.now()
        for client, errand in list(asking.pending.items()):
            if now - since.setdefault(client, now) > self.session.deadline:
                asking.missing[errand.client] = "did not answer in time"
                del asking.pending[client]

    def _fill(self) -> list[tuple[int, str]]:
        """Those that are connected begin, in the order in which they wait, as long as there are places."""
        clock, begun, staying = self.session.clock, [], []
        for name, message, client in self._queue:
            busy = clock.at_work()
            site = self.session.roster.name_of(client)
            there = self.session.post.node_of(site) is not None and site not in self.session.objections
            if client in self._ended or client in busy or not there or (self._slots and len(busy) >= self._slots):
                staying.append((name, message, client))
                continue
            clock.depart(name, message, client, 1.0)
            begun.append((client, name))
        self._queue = staying
        return begun

    def _asked(self) -> dict[str, Asking]:
        """The messages somebody is at work on, sent by this process or about to be."""
        messages = self.session.clock.messages
        for name in [name for name in messages if not messages[name].flights]:
            del messages[name]
        for name in self.streams.keys() - messages.keys():
            del self.streams[name]
        for name, message in messages.items():
            if name not in self.streams:
                number = int(name.partition("-")[2])
                occasion = FlowerExchange(self.session, message.round, message.lr, self.manner, _exchanges=number)
                self.streams[name] = Asking(occasion, message.task, message.shared, encode(message.shared))
            asking = self.streams[name]
            for client in message.flights:
                if client not in asking.pending and client not in asking.results:
                    asking.add(client, message.private.get(client))
        return self.streams

    def _again(self, taken: Taken) -> None:
        """What happened before the server was stopped: who began, who came to an end."""
        waiting = {(client, name): message for name, message, client in self._queue}
        for client, name in taken.begun:
            self.session.clock.depart(name, waiting[client, name], client, 1.0)
        gone = set(taken.begun)
        self._queue = [one for one in self._queue if (one[2], one[0]) not in gone]
        for message in self.session.clock.messages.values():
            self._land([client for client in (*taken.results, *taken.missing) if client in message.flights], message)

    def _accepted(self, taken: Taken, count: int) -> Replies:
        """Count them, and go on from them."""
        self.bytes_up += taken.bytes_up
        self.bytes_down += taken.bytes_down
        self.missing |= taken.missing
        for client, memory in taken.memory.items():
            if memory is not None:
                self.session.versions.advance(client, memory)
        self._arrived += len(taken.results)
        if self._arrived < max(1, min(self.session.minimum, count)):
            raise EmptyRound(f"{self._arrived} answered and nobody else is at work (clients.minimum)")
        ids = tuple(taken.results)
        results = tuple(self._here(result) for result in taken.results.values())
        examples = torch.tensor(self.session.roster.sizes(self.round)[list(ids)])
        return Replies(ids, results, examples, taken.missing, tuple(self._came[client] for client in ids))
