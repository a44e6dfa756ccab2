"""FedBuff: the server moves whenever a buffer of answers is full, and waits for nobody in particular.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba. "Federated learning with buffered asynchronous aggregation".
AISTATS 2022, arXiv 2106.06639.

    server:    keeps M clients at work (concurrency); a client that begins is given the model of that moment, w_v
    client k:  local training as FedAvg, from w_v                                       -> w_k
    server:    when K answers are there (buffer), the t-th time:
               w_{t+1} = w_t + eta / K sum_k s(t - v_k) (w_k - w_{v_k}),   s(tau) = (1 + tau)^(-a)

Sent: as FedAvg. The server also keeps every model somebody is still at work on. Reveals the update, and how long a
client took. One round is one full buffer. Who comes first is said by the clock of `[pace]`, or of a real federation;
without either everybody takes equally long.
Defaults: M is the cohort of a round (clients.count or clients.fraction), K half of it, a = 1/2 and eta = 1 as in the
paper. Whoever began more than max_staleness buffers ago counts for nothing, and another answer takes its place.
With M = K = the cohort it is FedAvg with weight = "uniform".
Deviations: a client that answered does not begin again before the buffer is full, so nobody is twice in one. Buffers of
the network (running statistics) are averaged. clients.over and clients.sampler: over adds to M, and those whom the
sampler names are the first to begin, in an order drawn by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

import accord.authoring as fl
from accord.core.algorithm import put
from accord.core.streaming import joined, only, streaming
from accord.core.tensors import subtract
from accord.core.types import Exchange, Streaming, weighted_sum

TREE = "buffered"  # of the state: how often the server has moved, and what the last buffer was like


@dataclass(frozen=True)
class Stale:
    """w_t + eta / K sum_k s(tau_k) (w_k - w_{v_k}): every change from the model it began from."""

    needs_each: ClassVar[str] = ""  # how old an answer is, is known without looking into it
    server_lr: float
    exponent: float

    def state(self, tree: str, value: fl.Tree) -> fl.Trees:
        return {}

    def __call__(self, state: fl.State, tree: str, replies: fl.Replies) -> fl.Trees:
        """Changes in the order of client ids."""
        share = (1.0 + staleness(state, replies)) ** -self.exponent / len(replies)
        starts = [began.shared[tree] for began in replies.began]
        changes = (subtract(model, start) for model, start in zip(replies.each(tree), starts, strict=True))
        step = weighted_sum(changes, self.server_lr * share)
        return {tree: {name: value + step[name] for name, value in state[tree].items()}}


def staleness(state: fl.State, replies: fl.Replies) -> torch.Tensor:
    """[k] how often the server has moved since each of them began."""
    versions = torch.tensor([began.version for began in replies.began], dtype=torch.float64)
    return float(state[TREE]["updates"]) - versions


@dataclass(frozen=True)
class Buffered(fl.Method):
    """A round is one buffer."""

    needs_each: ClassVar[str] = ""
    concurrency: int = 0
    buffer: int = 0
    max_staleness: int = 0

    def init(self, world: fl.World) -> fl.State:
        """No buffer yet."""
        whole = torch.zeros((), dtype=torch.int64)
        numbers = {"updates": whole, "left_out": whole.clone(), "staleness": whole.double()}
        return put(super().init(world), **{TREE: numbers})

    def round(self, state: fl.State, world: fl.World, exchange: Exchange) -> tuple[fl.State, fl.Replies]:
        """Fill the places, wait for a full buffer, move."""
        stream = streaming(exchange)
        most = min(self.concurrency or self.sampler.size(len(world.clients)), len(world.clients))
        updates = int(state[TREE]["updates"])
        stream.begin("train", self.order(state, world), self.message(state), version=updates, slots=most)
        replies, left_out = self.fresh(state, stream, self.buffer or (most + 1) // 2)
        new = self.fold(state, world, replies) if len(replies) else state
        late = float(staleness(state, replies).mean()) if len(replies) else 0.0
        found = {"updates": updates + bool(len(replies)), "left_out": left_out, "staleness": late}
        numbers = {name: torch.full_like(t, found[name]) for name, t in state[TREE].items()}  # where the state lies
        return put(new, **{TREE: numbers}), replies

    def order(self, state: fl.State, world: fl.World) -> list[int]:
        """All clients: those the sampler names, then the others, each in an order drawn by chance."""
        named = sorted(self.sampler(state, world))
        others = sorted(set(world.clients) - set(named))
        rng = world.key.at("turn", world.round)
        return [int(client) for group in (named, others) for client in rng.permutation(group)]

    def fresh(self, state: fl.State, stream: Streaming, count: int) -> tuple[fl.Replies, int]:
        """`count` answers that are not too old, fewer where no more can come; and how many were."""
        found: list[fl.Replies] = []
        left_out = 0
        while (wanted := count - sum(map(len, found))) > 0:
            came = stream.arrivals(wanted)
            young = [not self.max_staleness or old <= self.max_staleness for old in staleness(state, came).tolist()]
            found.append(only(came, young))
            left_out += young.count(False)
            if len(came) < wanted:
                break
        return joined(found), left_out

    def metrics(self, state: fl.State) -> dict[str, float]:
        """How old the answers of the last buffer were, on average, and how many were too old to count."""
        own = {"staleness": float(state[TREE]["staleness"])}
        if self.max_staleness:
            own["too_stale"] = float(state[TREE]["left_out"])
        return super().metrics(state) | own


@fl.method("server")
def fedbuff(
    setup: fl.Setup,
    *,
    concurrency: Annotated[int, fl.AtLeast(0), "M, clients at work at the same time; 0: a round's cohort"] = 0,
    buffer: Annotated[int, fl.AtLeast(0), "K, answers that make a round; 0: half of the concurrency"] = 0,
    exponent: Annotated[float, fl.Range(low=0), "a, how fast old answers lose weight; 0: they do not"] = 0.5,
    server_lr: Annotated[float, fl.Range(above=0), fl.Search(0.1, 1.0, log=True), "eta"] = 1.0,
    max_staleness: Annotated[int, fl.AtLeast(0), "buffers after which an answer counts for nothing; 0: never"] = 0,
) -> fl.Method:
    """Move whenever a buffer of answers is full; old answers count for less."""
    return setup.method(
        setup.local(fl.SampleLoss()),
        {"model": Stale(server_lr, exponent), "buffers": fl.Mean("uniform")},
        kind=Buffered,
        concurrency=concurrency,
        buffer=buffer,
        max_staleness=max_staleness,
    )
