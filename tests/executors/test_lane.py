"""A lane with a pretended task: what its begin, its steps and its close are given, and where their values lie."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accord.client import Work
from accord.core.types import Batch, Job
from accord.executors.gpu.graphs import CaptureError, Recorder
from accord.executors.gpu.lane import Client, Lane, nothing
from accord.executors.gpu.stack import Stack, split

SHARED: Any = {"model": {"w": torch.ones(2)}}
DATA: Any = object()
BATCH: Any = object()


class Task:
    """Notes the jobs; counts one up in every step, and doubles the rows of a client at the end."""

    def __init__(self) -> None:
        self.jobs = list[Job]()

    def begin(self, job: Job) -> Any:
        self.jobs.append(job)
        return {"count": torch.zeros(1), "rows": torch.arange(4.0)}

    def step(self, job: Job, carry: Any, batch: Any) -> Any:
        assert batch is BATCH
        self.jobs.append(job)
        return {"count": carry["count"] + 1, "rows": carry["rows"]}

    def close(self, job: Job, carry: Any) -> None:
        self.jobs.append(job)
        self.closed = {name: tensor.clone() for name, tensor in carry.items()}


def job(number: float) -> Job:
    return Job(
        {},
        {"p": {"w": torch.tensor([number])}},
        {"m": {"w": torch.tensor([-number])}},
        {"lr": torch.tensor(number)},
        DATA,
    )


def seated(task: Any) -> Lane:
    lane = Lane(task, torch.device("cpu"))
    lane.seat(job(3), 4)
    lane.begin(SHARED, DATA)
    return lane


def test_all_work_is_given_the_clients_own_job() -> None:
    task = Task()
    lane = seated(task)
    lane.step(SHARED, DATA, BATCH)
    lane.step(SHARED, DATA, BATCH)
    lane.close(SHARED, DATA, 4)
    assert len(task.jobs) == 4
    for given in task.jobs:
        assert given.shared is SHARED
        assert given.data is DATA
        assert given.private["p"]["w"].tolist() == [3]
        assert given.memory["m"]["w"].tolist() == [-3]
        assert float(given.info["lr"]) == 3
    assert lane.carry.value["count"].tolist() == [2]
    assert task.closed["count"].tolist() == [2]


def test_the_next_client_lies_where_the_last_one_lay() -> None:
    task = Task()
    lane = seated(task)
    place, moved = lane.given.value["private"]["p"]["w"].data_ptr(), lane.moved
    lane.seat(job(5), 4)
    lane.begin(SHARED, DATA)
    assert lane.given.value["private"]["p"]["w"].data_ptr() == place
    assert lane.moved == moved
    assert task.jobs[-1].private["p"]["w"].tolist() == [5]


def test_rows_of_a_client_have_room_for_the_largest() -> None:
    """Clients of three and five samples, and nobody has more than seven."""
    task: Any = Task()
    lane = Lane(task, torch.device("cpu"))
    for count in (3, 5):
        rows = torch.arange(float(count))
        lane.seat(job(1)._replace(memory={"m": {"w": rows}}), 7)
        lane.carry.load({"count": torch.zeros(1), "rows": 10 * rows}, 7)
        assert lane.given.like(count)["memory"]["m"]["w"].tolist() == rows.tolist()
    assert len(lane.given.value["memory"]["m"]["w"]) == 7
    lane.close(SHARED, DATA, 5)
    assert task.closed["rows"].tolist() == [0, 10, 20, 30, 40], "without the rows beyond"


def test_moves_of_both_buffers_count() -> None:
    lane = seated(Task())
    before = lane.moved
    lane.given.moved += 2
    lane.carry.moved += 3
    assert lane.moved == before + 5


def test_a_twin_has_the_values_and_places_of_its_own() -> None:
    task = Task()
    lane = seated(task)
    lane.step(SHARED, DATA, BATCH)
    twin = lane.twin()
    assert twin.task is task
    assert twin.given.value["private"]["p"]["w"].tolist() == [3]
    assert twin.carry.value["count"].tolist() == [1]
    twin.step(SHARED, DATA, BATCH)
    assert (twin.carry.value["count"].tolist(), lane.carry.value["count"].tolist()) == ([2], [1])


class Stacked:
    """A compiled step with a pretended task: notes what both are given. Gradients are 10 and 20."""

    def __init__(self, own: str = "", moves_in_stack: bool = False) -> None:
        self.own, self.moves_in_stack, self.task = own, moves_in_stack, self
        self.given, self.moved = list[Any](), list[Any]()

    def has_own(self, *names: str) -> bool:
        return self.own in names

    def prepare(self, job: Job, carry: Any, batch: Batch) -> Batch:
        carry["seen"] = carry["seen"] + float(job.info["lr"])
        return batch._replace(x=batch.x + 100)

    def __call__(self, shared: Any, given: Any, carry: Any, batch: Batch) -> Any:
        assert shared is SHARED
        self.given.append((given["info"]["lr"].tolist(), carry["w"].tolist(), batch.x.tolist()))
        if self.moves_in_stack:
            return {}, []
        return {"t": {"w": torch.tensor([[10.0], [20.0]])}}, [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])]

    def move(self, job: Job, carry: Any, batch: Batch, grads: Any, sums: Any) -> None:
        assert job.shared is SHARED
        assert job.data is DATA
        self.moved.append((float(job.info["lr"]), batch.x.tolist(), [float(value) for value in sums]))
        carry["w"] = carry["w"] - grads["t"]["w"]


def stack_of(compiled: Any) -> tuple[Stack, list[Lane]]:
    """Two lanes, of clients 1 and 2."""
    lanes = [Lane(compiled, torch.device("cpu")) for _ in range(2)]
    for number, lane in enumerate(lanes, start=1):
        lane.seat(job(number), 4)
        lane.carry.load({"w": torch.tensor([float(number)]), "seen": torch.zeros(1)}, 4)
    return Stack(compiled, lanes, 4, Recorder(torch.device("cpu"))), lanes


def both() -> Batch:
    return Batch(torch.tensor([[5.0], [6.0]]), *[torch.zeros(2, 1)] * 3, {"n": torch.tensor([[7.0], [8.0]])})


@pytest.mark.parametrize("own", ["prepare", "batch", "before", "other"])
def test_a_stack_prepares_lane_by_lane_where_a_part_has_something_to(own: str) -> None:
    compiled = Stacked(own)
    stack, lanes = stack_of(compiled)
    stack.step(SHARED, DATA, both())
    more, seen = (0.0, [0.0, 0.0]) if own == "other" else (100.0, [1.0, 2.0])
    assert compiled.given == [([1.0, 2.0], [[1.0], [2.0]], [[5.0 + more], [6.0 + more]])]
    assert compiled.moved == [(1.0, [5.0 + more], [1.0, 3.0]), (2.0, [6.0 + more], [2.0, 4.0])]
    assert [lane.carry.value["w"].item() for lane in lanes] == [1.0 - 10.0, 2.0 - 20.0]
    assert stack.carry["w"].tolist() == [[-9.0], [-18.0]], "where the next step finds it"
    assert stack.carry["seen"].flatten().tolist() == seen


def test_a_stack_that_moves_by_itself_moves_no_lane() -> None:
    compiled = Stacked(moves_in_stack=True)
    stack, lanes = stack_of(compiled)
    stack.step(SHARED, DATA, both())
    assert (len(compiled.given), compiled.moved) == (1, [])
    assert [lane.carry.value["w"].item() for lane in lanes] == [1.0, 2.0]


def test_a_stack_holds_its_lanes_until_one_of_them_moves() -> None:
    for moved in ("given", "carry"):
        stack, lanes = stack_of(Stacked())
        assert stack.holds(lanes)
        assert not stack.holds(lanes[:1])
        getattr(lanes[1], moved).moved += 1
        assert not stack.holds(lanes)


def test_a_batch_of_all_lanes_is_one_of_each() -> None:
    first, second = split(both())
    assert (first.x.tolist(), second.x.tolist()) == ([5.0], [6.0])
    assert (first.noise["n"].tolist(), second.noise["n"].tolist()) == ([7.0], [8.0])


def test_a_client_is_known_by_its_number() -> None:
    assert Client(Work(7, {}, None), job(1), 3, [], {}).id == 7


def test_recorded_work_sees_no_data() -> None:
    none = nothing(5)
    assert none.num_classes == 5
    assert none.has_test is False
    with pytest.raises(CaptureError, match=r"it reads job\.data\.x in a step"):
        _ = none.x
