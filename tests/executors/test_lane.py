"""A lane with a pretended task: what its begin, its steps and its close are given, and where their values lie."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accord.client import Work
from accord.core.types import Job
from accord.executors.gpu.graphs import CaptureError
from accord.executors.gpu.lane import Client, Lane, nothing

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


def test_a_client_is_known_by_its_number() -> None:
    assert Client(Work(7, {}, None), job(1), 3, [], {}).id == 7


def test_recorded_work_sees_no_data() -> None:
    none = nothing(5)
    assert none.num_classes == 5
    assert none.has_test is False
    with pytest.raises(CaptureError, match=r"it reads job\.data\.x in a step"):
        _ = none.x
