"""Which clients an actor is given at a time, and what becomes of them when it is lost: by hand, without Ray."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from accord.client import Answer, Work
from accord.executors.ray import dealing
from accord.executors.ray.crew import Crew, Member
from accord.executors.ray.dealing import Deal, Pile


def works(*clients: int) -> list[Work]:
    return [Work(client, {}, None) for client in clients]


def pieces(pile: Pile) -> list[list[int]]:
    return [[work.client for work in pile.next()] for _ in range(len(pile))]


def test_on_cores_the_longest_come_first_in_pieces_that_become_smaller() -> None:
    """80 samples and two actors: a share is 10, then (80 - 30) / 8 and so on, and a piece has one client at least."""
    sizes = np.array([5, 30, 5, 5, 5, 5, 5, 5, 5, 10])
    found = pieces(Pile(works(*range(10)), sizes, 2, side_by_side=False))
    assert found[0] == [1], "more than a share"
    assert found[1] == [9]
    assert found[2:] == [[0], [2], [3], [4], [5], [6], [7], [8]]


def test_a_piece_may_hold_exactly_a_share() -> None:
    """Eight clients of one sample and one actor: a share is 8 / 4 = 2, then 6 / 4, where one fits."""
    found = pieces(Pile(works(*range(8)), np.ones(8, np.int64), 1, side_by_side=False))
    assert found == [[0, 1], [2], [3], [4], [5], [6], [7]]


def test_side_by_side_there_are_as_few_pieces_as_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealing, "MOST_LANES", 3)
    sizes = np.array([1, 2, 3, 4, 5, 6, 7])
    assert pieces(Pile(works(0, 1, 2, 3, 4, 5), sizes, 2, side_by_side=True)) == [[5, 3, 1], [4, 2, 0]]
    seven = pieces(Pile(works(*range(7)), sizes, 2, side_by_side=True))
    assert seven == [[6, 2], [5, 1], [4, 0], [3]], "three at a time at most, so each actor has two"
    assert pieces(Pile(works(3), sizes, 2, side_by_side=True)) == [[3]]


def test_blocks_that_are_given_come_the_longest_first() -> None:
    sizes = np.array([1, 2, 30, 4])
    pile = Pile.of_blocks([works(0, 1), works(2), works(3)], sizes)
    assert pieces(pile) == [[2], [3], [0, 1]]


def test_what_nobody_began_comes_back_whole_and_suspects_apart() -> None:
    pile = Pile(works(0), np.ones(9, np.int64), 1, side_by_side=False)
    pile.back(works(1, 2))
    pile.apart(works(3, 4))
    assert pieces(pile) == [[3], [4], [1, 2], [0]]


def test_a_lost_actors_clients_are_dealt_out_again_until_they_have_ended_three() -> None:
    pile = Pile((), np.ones(9, np.int64), 1, side_by_side=False)
    deal, member = Deal(pile), Member(None)
    for time in range(3):
        member.pieces.clear()
        deal.note(member, f"first {time}", works(5, 6) if time == 0 else works(5))
        deal.note(member, f"second {time}", works(7))
        deal.lost(member, "no memory")
        again = pieces(pile)
        assert again == [[[7], [5], [6]], [[7], [5]], [[7]]][time], "only those it was at are suspects"
    assert deal.answers == {5: Answer(5, None, "its actor was lost 3 times: no memory")}
    assert deal.ends == {5: 3, 6: 1}
    assert deal.dealt == {}


def test_a_piece_that_came_back_is_settled() -> None:
    deal, member = Deal(Pile((), np.ones(9, np.int64), 1, side_by_side=False)), Member(None)
    deal.note(member, "a", works(1))
    deal.note(member, "b", works(2))
    deal.settled(member, "a", [Answer(1, None, "why")])
    assert member.pieces == ["b"]
    assert set(deal.dealt) == {"b"}
    assert deal.answers == {1: Answer(1, None, "why")}


def crew(*owed: int | None) -> Crew:
    """Members that owe so many pieces; None: one that is not in service."""
    made: Any = object.__new__(Crew)
    made.members = [
        Member(None, f"ready {n}", pieces=[f"{n}.{k}" for k in range(count or 0)]) for n, count in enumerate(owed)
    ]
    for member, count in zip(made.members, owed, strict=True):
        member.in_service = count is not None
    return made


@pytest.mark.parametrize(
    ("owed", "waiting", "chosen"),
    [
        ((1, 0, 1), 9, 1),  # the one with the least to do
        ((1, 1, 1), 4, 0),  # many are left: a second piece
        ((1, 1, 1), 3, None),  # as many as actors: they go to those that have nothing
        ((2, 2, 1), 9, 2),
        ((2, 2, 2), 9, None),
        ((None, 1), 9, 1),
        ((None, None), 9, None),
    ],
)
def test_who_is_given_the_next_piece(owed: tuple[int | None, ...], waiting: int, chosen: int | None) -> None:
    made = crew(*owed)
    found = made.free(waiting)
    assert (None if found is None else made.members.index(found)) == chosen


def test_who_is_waited_for() -> None:
    made = crew(None, 2, 0)
    assert list(made.waited_for()) == ["ready 0", "1.0", "1.1"]
    assert not made.at_rest
    assert crew(None, 0).at_rest
