"""What is noted of the trees that pass: when, how large, and whether one client's answer is in them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accord.core.disclosure import Disclosure
from accord.core.types import Replies, Result
from accord.engine.traffic import FIRST, JUDGED, LAST, START, Parcel, _Counting, _holds, _Notes, _when
from accord.filters.changes import STEPS

ROW = torch.tensor([1.0, 2.0])
TABLE = torch.tensor([[5.0, 6.0], [1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    ("value", "answer", "held"),
    [
        (ROW, ROW.clone(), True),
        (ROW, ROW + 1, False),
        (TABLE, ROW, True),  # one of its rows
        (TABLE, ROW + 1, False),
        (TABLE, torch.tensor([[3.0, 4.0], [1.0, 2.0]]), True),  # some of its rows
        (TABLE, torch.tensor([[3.0, 4.0], [1.0, 0.0]]), False),
        (TABLE, torch.tensor([1.0, 2.0, 3.0]), False),  # of another width
        (TABLE, torch.tensor(1.0), False),
        (ROW, torch.tensor([1.0]), False),
        (torch.stack([TABLE, TABLE + 1]), TABLE, True),
        (torch.stack([TABLE, TABLE + 1]), TABLE + 2, False),
    ],
)
def test_whether_a_message_holds_an_answer(value: torch.Tensor, answer: torch.Tensor, held: bool) -> None:
    assert _holds(value, answer) is held


@pytest.mark.parametrize(
    ("phases", "rounds", "words"),
    [
        ({START}, 9, "once"),
        ({JUDGED}, 9, "when judged"),
        ({FIRST, LAST}, 9, "every round"),
        ({FIRST}, 9, "some rounds"),
        ({LAST}, 9, "some rounds"),
        ({FIRST}, 1, "every round"),
        ({START, FIRST, LAST}, 9, "every round"),
    ],
)
def test_when_a_tree_passes(phases: set[str], rounds: int, words: str) -> None:
    assert _when(phases, rounds) == words


def test_what_lay_on_the_wire_is_weighed() -> None:
    """Twelve bytes, sent as four; where nothing is known of the wire, they are twelve."""
    result = Result({"model": {"w": torch.zeros(3)}}, {}, {})
    for carried, size in (({"model": {"w": torch.zeros(1)}}, 4), (None, 12)):
        notes = _Notes()
        notes.up("first", "train", {}, result, carried)
        (parcel,) = notes.parcels({"train": {"model": Disclosure.UPDATE}}, 1)
        assert (parcel.bytes, parcel.direction, parcel.kind) == (size, "up", Disclosure.UPDATE)


def test_what_a_filter_sends_along_is_declared_with_its_tree() -> None:
    """Steps of rounding belong to the tree whose numbers were rounded."""
    notes = _Notes()
    carried = {"model": {"w": torch.zeros(1)}, f"{STEPS}model": {"w": ROW}, f"{STEPS}other": {"w": ROW}}
    notes.up("first", "train", {}, Result({"model": {"w": ROW}}, {}, {}), carried)
    found = {one.tree: one for one in notes.parcels({"train": {"model": Disclosure.UPDATE}}, 1)}
    assert (found[f"{STEPS}model"].declared, found[f"{STEPS}model"].kind) == (True, Disclosure.UPDATE)
    assert not found[f"{STEPS}other"].declared


def test_what_the_first_client_gets_and_gives_is_noted() -> None:
    """Of two clients; a tree is as large as it ever was, and what came back from a client is known when it goes out."""
    notes = _Notes()
    message = {"model": {"w": torch.zeros(4)}}
    answer = {"model": {"w": ROW}, "same": {"w": torch.zeros(4)}, "one": {"n": torch.tensor([7.0])}, "none": {}}

    def exchange(task: str, clients: Any, shared: Any, private: Any = None) -> Replies:
        results = tuple(Result(answer, {}, {"seen": torch.ones(1), "loss": torch.ones(1)}) for _ in clients)
        return Replies(tuple(clients), results, torch.ones(len(clients)), {})

    _Counting(exchange, FIRST, notes)("train", [3, 5], message, {3: {"own": {"a": torch.zeros(2)}}, 5: {"b": {}}})
    later = {"model": {"w": torch.zeros(2)}, "sent": {"w": ROW}, "kept": {"w": torch.zeros(4)}, "few": {"n": ROW[:1]}}
    _Counting(exchange, LAST, notes)("train", [3, 5], later)
    assert notes.numbers == {"train": ("loss", "seen")}
    declared: Any = {"train": {"model": Disclosure.UPDATE}}
    found = {(one.direction, one.tree): one for one in notes.parcels(declared, 9)}
    assert found["down", "model"] == Parcel("every round", "train", "down", "model", 16)
    assert found["down", "own"] == Parcel("some rounds", "train", "down", "own", 8)
    assert found["down", "sent"] == Parcel("some rounds", "train", "down", "sent", 8, passed_on=True)
    assert not found["down", "kept"].passed_on, "it came back as it went out"
    assert not found["down", "few"].passed_on, "a single number is nobody's"
    assert found["up", "model"] == Parcel("every round", "train", "up", "model", 8, Disclosure.UPDATE)
    assert (found["up", "same"].declared, found["up", "one"].bytes) == (False, 4)
    assert ("up", "none") not in found
    assert ("down", "b") not in found
