"""Clients that are at work together, asked together.

A model that all of them were sent says the same of a client's samples whoever else's lie beside them. One pass over
many clients' samples keeps a GPU busy where a pass for each leaves it waiting for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain

import torch
from torch import Tensor

from accord.core.types import ClientData

Answers = tuple[Tensor, ...]
Question = Callable[[Tensor], Answers]  # of each sample by itself
EACH = 512  # samples at once for every client of a cohort: without gradients they take less memory than its training
MOST = 4096  # samples at once; more are no faster


class Cohort:
    """Who is at work together. An answer is kept until its client asks for it."""

    def __init__(self, clients: Sequence[ClientData]) -> None:
        self._clients = list(clients)
        self._at_once = min(MOST, EACH * len(self._clients))
        self._kept: dict[Hashable, dict[int, Answers]] = {}

    def has(self, client: ClientData) -> bool:
        """Whether it is one of them."""
        return any(one is client for one in self._clients)

    def answers(self, client: ClientData, name: Hashable, question: Question) -> Answers:
        """Of the client's own samples; whoever asks under a name first asks for all."""
        if name not in self._kept:
            self._kept[name] = {id(who): said for who, said in self._asked(question)}
        kept = self._kept[name].pop(id(client), None)
        return in_pieces(question, client.x, self._at_once) if kept is None else kept

    def _asked(self, question: Question) -> Iterator[tuple[ClientData, Answers]]:
        for group in self._groups():
            sizes = [len(client.y) for client in group]
            answers = in_pieces(question, torch.cat([client.x for client in group]), self._at_once)
            yield from zip(group, zip(*(torch.split(answer, sizes) for answer in answers), strict=True), strict=True)

    def _groups(self) -> Iterator[list[ClientData]]:
        """As many clients as have so few samples together, or one."""
        group: list[ClientData] = []
        for client in self._clients:
            if group and sum(len(one.y) for one in (*group, client)) > self._at_once:
                yield group
                group = []
            group.append(client)
        yield group


_now: ContextVar[Cohort | None] = ContextVar("cohort", default=None)


@contextmanager
def together(clients: Sequence[ClientData]) -> Iterator[None]:
    """Whatever they are all asked in the meantime is asked once."""
    before = _now.set(Cohort(clients))
    try:
        yield
    finally:
        _now.reset(before)


def cohort_of(client: ClientData) -> Cohort | None:
    """Those who are asked together with it; None where it is asked alone."""
    cohort = _now.get()
    return cohort if cohort is not None and cohort.has(client) else None


def in_pieces(question: Question, x: Tensor, size: int) -> Answers:
    """Of all samples, `size` at a time: besides the answers only those to one piece are in memory."""
    head, *tail = torch.split(x, size)
    first = question(head)
    if not tail:
        return first
    answers = tuple(said.new_empty(len(x), *said.shape[1:]) for said in first)
    places = zip(*(torch.split(answer, size) for answer in answers), strict=True)
    for place, said in zip(places, chain([first], map(question, tail)), strict=True):
        for part, one in zip(place, said, strict=True):
            part.copy_(one)
    return answers
