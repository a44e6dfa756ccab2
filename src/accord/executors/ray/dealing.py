"""Which clients an actor is given at a time: the longest first, in pieces that become smaller towards the end."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accord.client import Answer, Work
from accord.executors.gpu.batched import MOST_LANES
from accord.executors.processes import TRIES
from accord.executors.ray.crew import Member

PARTS = 4  # an actor's share of what is left is dealt out in about so many pieces


class Pile:
    """The clients that nobody has yet.

    On a core a piece holds a quarter of an actor's share of the samples that are left, and one client at least, so that
    few calls are made and no actor waits at the end. On a GPU, which trains clients side by side, there are as few
    pieces as actors, of about the same lengths.
    """

    def __init__(
        self, works: Iterable[Work], sizes: np.ndarray[Any, np.dtype[np.int64]], actors: int, side_by_side: bool
    ) -> None:
        # Ties by id, so that a failing run fails the same way again.
        longest = sorted(works, key=lambda work: (-sizes[work.client], work.client))
        self._pieces: deque[list[Work]] = deque()
        if side_by_side:
            count = actors * -(-len(longest) // (actors * MOST_LANES))
            self._pieces.extend(piece for first in range(count) if (piece := longest[first::count]))
            return
        left = float(sum(sizes[work.client] for work in longest))
        while longest:
            share, taken, held = left / (PARTS * actors), 0, 0.0
            while taken < len(longest) and (not taken or held + sizes[longest[taken].client] <= share):
                held += sizes[longest[taken].client]
                taken += 1
            self._pieces.append(longest[:taken])
            longest, left = longest[taken:], left - held

    @classmethod
    def of_blocks(cls, blocks: Sequence[list[Work]], sizes: np.ndarray[Any, np.dtype[np.int64]]) -> Pile:
        """Pieces that are given, the longest first."""
        pile = cls((), sizes, 1, False)
        lengths = [sum(int(sizes[work.client]) for work in block) for block in blocks]
        pile._pieces.extend(blocks[place] for place in sorted(range(len(blocks)), key=lambda place: -lengths[place]))
        return pile

    def __len__(self) -> int:
        return len(self._pieces)

    def next(self) -> list[Work]:
        """The piece to deal out now."""
        return self._pieces.popleft()

    def back(self, piece: list[Work]) -> None:
        """Nobody began it."""
        self._pieces.appendleft(piece)

    def apart(self, works: Sequence[Work]) -> None:
        """An actor was lost with these: one of them perhaps ends every process, so each is tried by itself."""
        self._pieces.extendleft([work] for work in reversed(works))


@dataclass
class Deal:
    """How far a request is: what nobody has yet, who has what, and what came back."""

    pile: Pile
    dealt: dict[Any, list[Work]] = field(default_factory=dict)  # by Ray's reference to the answers
    answers: dict[int, Answer] = field(default_factory=dict)
    ends: Counter[int] = field(default_factory=Counter)  # of actors, by the client they were at

    def note(self, member: Member, reference: Any, works: list[Work]) -> None:
        """An actor has a piece."""
        member.pieces.append(reference)
        self.dealt[reference] = works

    def settled(self, member: Member, reference: Any, answers: Iterable[Answer]) -> None:
        """A piece came back."""
        member.pieces.remove(reference)
        del self.dealt[reference]
        self.answers |= {answer.client: answer for answer in answers}

    def lost(self, member: Member, why: str) -> None:
        """An actor is gone: its clients are dealt out again. Those it was at have failed when it happens too often."""
        for place, reference in enumerate(member.pieces):
            works = self.dealt.pop(reference)
            if place:
                self.pile.back(works)
                continue
            self.ends.update(work.client for work in works)
            self.pile.apart([work for work in works if self.ends[work.client] < TRIES])
            for work in works:
                if self.ends[work.client] >= TRIES:
                    self.answers[work.client] = Answer(work.client, None, f"its actor was lost {TRIES} times: {why}")
