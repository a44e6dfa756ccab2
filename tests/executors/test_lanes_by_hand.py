"""Which lanes step, when they are stacked, what is dropped and said, with pretended lanes."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from accord.core.plan import Plan
from accord.core.types import Result
from accord.executors.gpu import lanes as module
from accord.executors.gpu.batched import Batched, _all_finite, _on
from accord.executors.gpu.graphs import CaptureError
from accord.executors.gpu.lanes import Lanes


def made(count: int, *, known: tuple[int, ...] = (), stack: Any = None) -> Any:
    lanes: Any = Lanes.__new__(Lanes)
    lanes.lanes = [SimpleNamespace(name=f"lane {number}", twin=lambda: "twin") for number in range(count)]
    lanes._steps = dict.fromkeys(known, "a recording")
    lanes._begins, lanes._closes = {}, {}
    lanes._stack, lanes._compiled = stack, None
    lanes._rehearsed, lanes._most = {True, False}, 7
    lanes.stacked, lanes.task, lanes.recorder = True, "the task", "the recorder"
    return lanes


@pytest.mark.parametrize(
    ("active", "loaded", "steps", "known", "size"),
    [
        (3, 8, 16, (), 8),  # a few steps are no reason for a recording
        (1, 8, 17, (), 1),  # 8, 4, 2, 1
        (3, 8, 17, (), 4),
        (4, 8, 17, (), 4),
        (4, 7, 17, (), 7),  # less than twice as many
        (2, 7, 17, (), 2),  # 7, 4, 2
        (3, 7, 17, (), 4),
        (4, 8, 16, (9, 6, 3, 7), 6),  # the smallest that was recorded and is large enough
        (3, 8, 16, (9, 6, 3), 3),
        (7, 8, 16, (9, 6, 3), 8),
        (5, 8, 16, (8,), 8),
    ],
)
def test_how_many_lanes_step(active: int, loaded: int, steps: int, known: tuple[int, ...], size: int) -> None:
    assert made(8, known=known)._size(active, loaded, steps) == size


def test_a_stack_steps_as_a_whole_while_a_quarter_of_it_is_active() -> None:
    lanes = made(8, stack="a stack")
    assert lanes._size(3, 3, 1) == 8
    assert lanes._size(2, 2, 1) == 2
    assert lanes._in_stack(8)
    assert not lanes._in_stack(7)
    assert not made(8)._in_stack(8)


def test_recordings_share_the_memory_of_the_first() -> None:
    lanes = made(2)
    assert lanes._beside() is None
    lanes._closes = {(2, 5): "close"}
    assert lanes._beside() == "close"
    lanes._begins = {2: "begin"}
    assert lanes._beside() == "begin"
    lanes._steps = {2: "step", 1: "another"}
    assert lanes._beside() == "step"
    lanes.forget()
    assert lanes._beside() is None


@pytest.mark.parametrize(("count", "room", "spare"), [(2, 3, 1), (2, 4, 0), (3, 5, 2), (3, 4, 1), (3, 3, 0), (2, 1, 0)])
def test_a_stack_is_as_large_as_it_will_soon_be(
    count: int, room: int, spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "StackedStep", lambda task, none: ("compiled", task, none.num_classes))
    monkeypatch.setattr(module, "Stack", lambda *given: given)
    lanes = made(count, known=(1,))
    data: Any = SimpleNamespace(num_classes=5)
    lanes._lay_together(data, room)
    assert lanes.lanes[count:] == ["twin"] * spare
    compiled = ("compiled", "the task", 5)
    assert lanes._stack == (compiled, lanes.lanes, 7, "the recorder")
    assert lanes._compiled == compiled
    assert lanes._rehearsed == {False}, "other shapes are compiled anew"
    assert lanes._steps == {}


def test_a_stack_stays_while_it_holds_its_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    data: Any = SimpleNamespace(num_classes=5)
    monkeypatch.setattr(module, "Stack", lambda *given: "another")
    for holds in (True, False):
        stack = SimpleNamespace(holds=lambda lanes, holds=holds: holds)
        lanes = made(3, stack=stack, known=(3,))
        lanes._compiled = "compiled before"
        lanes._lay_together(data, 3)
        assert lanes._stack is stack if holds else lanes._stack == "another"
        assert bool(lanes._steps) == holds
        assert lanes._compiled == "compiled before"


def test_one_lane_and_those_apart_are_not_stacked() -> None:
    data: Any = None
    for lanes in (made(1), made(3)):
        lanes.stacked = len(lanes.lanes) == 1
        lanes._lay_together(data, 9)
        assert lanes._stack is None
        assert all(lane != "twin" for lane in lanes.lanes)


def test_lanes_are_stacked_where_it_was_asked_for_and_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder: Any = SimpleNamespace(device=torch.device("cpu"), failures=0)
    for asked in (True, False):
        monkeypatch.setattr(module, "to_be_stacked", lambda task, asked=asked: asked)
        assert Lanes("task", 4, recorder).stacked is asked  # type: ignore[arg-type]
        assert not Lanes("task", 4, recorder, stacked=False).stacked  # type: ignore[arg-type]


def house() -> Any:
    """A pool that knows lanes of two tasks, without a GPU."""
    batched: Any = Batched.__new__(Batched)
    batched.recorder = SimpleNamespace(cuda=False)
    batched.limit, batched._unfit, batched._apart = {}, set(), set()
    for name in ("_lanes", "_known", "_shared"):
        setattr(batched, name, {"train": {1: "some"}, "other": {2: "more"}})
    return batched


class Noted:
    """Lanes that take everybody in, and are ready from the first client on."""

    def __init__(self, task: Any, width: int, recorder: Any, *, stacked: bool) -> None:
        self.made, self.ready, self.said = (task, width, recorder, stacked), False, list[Any]()

    def load(self, client: Any, carry: Any, most: int) -> None:
        self.ready = True
        self.said.append(("load", client, carry, most))

    def seat(self, client: Any, most: int) -> None:
        self.said.append(("seat", client, most))


def one(**changes: Any) -> Any:
    """A client of five samples in batches of two."""
    given: dict[str, Any] = {"private": torch.zeros(3), "memory": torch.zeros(2), "carry": torch.zeros(4)}
    given |= {"has_test": False, "width": 2, "draws": {"n": np.zeros((3, 2))}} | changes
    job = SimpleNamespace(
        private={"p": {"w": given["private"]}},
        memory={"m": {"w": given["memory"]}},
        data=SimpleNamespace(has_test=given["has_test"]),
        carry={"c": given["carry"]},
    )
    return SimpleNamespace(job=job, examples=5, batches=[np.arange(given["width"])], draws=given["draws"])


@pytest.fixture
def seats(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("accord.executors.gpu.batched.Lanes", Noted)
    batched = house()
    batched._lanes, batched._known, batched.most = {}, {}, 9
    task: Any = SimpleNamespace(plan=Plan(batch_size=0), begin=lambda job: job.carry)
    return SimpleNamespace(batched=batched, task=task, take=lambda client: batched._seat("train", task, client))


def test_clients_alike_share_lanes_and_begin_together(seats: Any) -> None:
    first, second = one(), one()
    lanes = seats.take(first)
    assert lanes.made == (seats.task, 2, seats.batched.recorder, True)
    assert seats.take(second) is lanes
    assert lanes.said == [("load", first, first.job.carry, 9), ("seat", second, 9)]
    assert len(seats.batched._lanes["train"]) == 1
    seats.batched._apart.add("train")
    assert not seats.take(one(width=3)).made[3], "it was found that they cannot be stacked"


@pytest.mark.parametrize(
    "changes",
    [
        {"width": 3},
        {"has_test": True},
        {"private": torch.zeros(4)},
        {"memory": torch.zeros(2, dtype=torch.float64)},
        {"draws": {"n": np.zeros((3, 2), np.float32)}},
        {"draws": {"n": np.zeros(3)}},
        {"draws": {"other": np.zeros((3, 2))}},
    ],
    ids=["width", "tested", "private", "memory", "dtype", "dims", "name"],
)
def test_clients_that_differ_have_lanes_of_their_own(seats: Any, changes: dict[str, Any]) -> None:
    lanes, others = seats.take(one()), seats.take(one(**changes))
    assert others is not lanes
    assert [len(each.said) for each in (lanes, others)] == [1, 1]


def test_what_clients_carry_tells_them_apart_too(seats: Any) -> None:
    lanes = seats.take(one())
    lanes.ready = False  # no lane is free, so the next one begins by itself
    other = seats.take(one(carry=torch.zeros(6)))
    assert other is not lanes
    other.ready = False
    assert seats.take(one()) is lanes


def test_the_message_lies_at_fixed_addresses() -> None:
    batched = house()
    batched._shared, batched.site = {}, SimpleNamespace(device=torch.device("cpu"))

    def message(*values: float) -> Any:
        return SimpleNamespace(task="train", shared={"model": {"w": torch.tensor(values)}})

    first = batched._share(message(1.0, 2.0))["model"]["w"]
    assert (first.tolist(), list(batched._lanes)) == ([1.0, 2.0], ["other"])
    batched._lanes["train"] = "new ones"
    again = batched._share(message(3.0, 4.0))["model"]["w"]
    assert again is first
    assert (first.tolist(), list(batched._lanes)) == ([3.0, 4.0], ["other", "train"])
    assert batched._share(message(5.0))["model"]["w"].tolist() == [5.0]
    assert list(batched._lanes) == ["other"], "recorded for another shape"


@pytest.mark.parametrize(
    ("most", "waiting", "size"), [(3, 4, 2), (3, 3, 3), (3, 7, 3), (4, 9, 3), (4, 10, 4), (4, 1, 1), (1, 5, 1)]
)
def test_blocks_are_nearly_equal(most: int, waiting: int, size: int) -> None:
    batched = house()
    batched.asked = most
    assert batched._block_size("train", waiting) == size
    batched.asked, batched.limit = 128, {"train": most}
    assert batched._block_size("train", waiting) == size


def test_what_cannot_be_recorded_stacked_is_tried_side_by_side_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class TooOften(BaseException):
        pass

    batched, tried = house(), list[int]()

    def refuse(*given: Any) -> Any:
        tried.append(1)
        if len(tried) > 2:
            raise TooOften
        raise CaptureError("it looks at a value")

    batched.tasks, batched.asked, batched.done = {"train": SimpleNamespace(plan=Plan())}, 4, lambda *how: None
    client: Any = SimpleNamespace(work="the work")
    for name, gives in (("_share", {}), ("_clients", [client]), ("_one_by_one", ["answer"])):
        monkeypatch.setattr(batched, name, lambda *given, gives=gives: gives)
    monkeypatch.setattr(batched, "_block", refuse)
    monkeypatch.setattr("accord.executors.gpu.batched.to_be_stacked", lambda task: True)
    request: Any = SimpleNamespace(task="train", works=[1])
    with pytest.warns(RuntimeWarning) as caught:
        assert batched.run(request) == ["answer"]
    assert len(tried) == 2
    assert ["compiled" in str(one.message) for one in caught] == [True, False]
    assert (batched._apart, batched._unfit) == ({"train"}, {"train"})


def test_running_out_of_memory_halves_what_is_tried() -> None:
    for size, half in ((9, 4), (8, 4), (3, 1), (2, 1)):
        batched = house()
        batched._halve("train", size)
        assert batched.limit == {"train": half}
        assert list(batched._lanes) == list(batched._known) == ["other"]
        assert batched._unfit == set()
    batched = house()
    with pytest.warns(RuntimeWarning, match="^task 'train' cannot be recorded .* one client's recording alone"):
        batched._halve("train", 1)
    assert batched.limit == {"train": 1}
    assert batched._unfit == {"train"}


@pytest.mark.parametrize("way", ["_unstack", "_give_up"])
def test_a_slower_way_is_said_and_drops_the_lanes_of_that_task(way: str) -> None:
    batched = house()
    words = {"_unstack": "compiled for all clients at once", "_give_up": "recorded as a CUDA graph"}[way]
    with pytest.warns(RuntimeWarning, match=f"^task 'train' cannot be {words}.*: the reason$") as caught:
        getattr(batched, way)("train", "the reason")
    assert len(caught) == 1
    assert list(batched._lanes) == list(batched._known) == ["other"]
    assert (batched._apart, batched._unfit) == (({"train"}, set()) if way == "_unstack" else (set(), {"train"}))


def test_a_pool_that_is_closed_holds_nothing() -> None:
    batched = house()
    batched.close()
    assert batched._lanes == batched._known == batched._shared == {}


def test_whose_values_are_numbers() -> None:
    fine, wide = torch.ones(2), torch.ones(2, dtype=torch.float64)
    bad = torch.tensor([1.0, math.inf], dtype=torch.float64)
    worse = torch.tensor([math.nan])
    assert _all_finite([[fine, wide], [fine, bad], [worse, wide], []]) == [True, False, False, True]
    assert _all_finite([[bad, fine]]) == [False]
    assert _all_finite([]) == []


def test_a_result_that_is_no_number_ends_the_run_with_its_client() -> None:
    """What is empty, or whole numbers, is fine."""

    def result(value: float) -> Result:
        reply = {"none": torch.zeros(0), "w": torch.tensor([1.0, value]), "n": torch.tensor([3])}
        return Result({"model": reply}, {}, {"loss": torch.tensor(0.5)})

    fine, pairs = result(2.0), [(SimpleNamespace(id=4), result(math.nan))]
    pairs.append((SimpleNamespace(id=7), fine))
    bad, good = house()._checked(pairs, 3)
    assert (bad.client, bad.result, bad.fatal, good.client, good.fatal) == (4, None, True, 7, False)
    assert "client 4" in bad.error
    assert good.result is fine


def test_trees_are_brought_to_a_device() -> None:
    found = _on({"a": {"w": torch.ones(2)}}, torch.device("meta"))
    assert found["a"]["w"].device.type == "meta"
