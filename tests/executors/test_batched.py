"""Lanes without a GPU: nothing is recorded, but everything around the recording is the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from accord.client import Site
from accord.core.persample import PerSample
from accord.core.plan import Plan
from accord.data.federated import FederatedData
from accord.errors import DivergedError
from accord.executors.gpu.batched import Batched
from accord.executors.gpu.graphs import CaptureError, Recorder, Recording
from accord.executors.gpu.lane import Lane
from accord.executors.gpu.samples import Samples
from support.federation import Everyone, Given, TinyRun, tiny_data, tiny_model

COHORTS = Given([0, 2], [1, 3], [0, 1, 2, 3])


def close(a: TinyRun, b: TinyRun, tolerance: float = 1e-10) -> bool:
    return all(torch.allclose(a.state["model"][n], t, rtol=tolerance, atol=1e-12) for n, t in b.state["model"].items())


def never_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a client ran outside the lanes")

    monkeypatch.setattr(Batched, "_one_by_one", refuse)


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize("last", ["pad", "fill", "drop"])
def test_blocks_of_any_size_agree(lanes: int, last: Any, float64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    never_one_by_one(monkeypatch)
    plan = Plan(epochs=3, batch_size=4, last_batch=last)
    options: dict[str, Any] = {"plan": plan, "sampler": COHORTS}
    side_by_side = TinyRun("scaffold", executor=lambda s, t: Batched(s, t, lanes=lanes), **options).rounds(4)
    assert close(side_by_side, TinyRun("scaffold", **options).rounds(4))


@pytest.mark.parametrize("name", ["mixup", "dann", "fedrep"])
@pytest.mark.parametrize("lanes", [1, 3])
def test_draws_of_every_step_reach_their_lane(
    name: str, lanes: int, float64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_one_by_one(monkeypatch)
    side_by_side = TinyRun(name, executor=lambda s, t: Batched(s, t, lanes=lanes), sampler=COHORTS).rounds(3)
    assert close(side_by_side, TinyRun(name, sampler=COHORTS).rounds(3))


def test_clients_smaller_than_a_batch(float64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    never_one_by_one(monkeypatch)
    data = tiny_data(sizes=(2, 3, 12, 5), dtype=torch.float64)
    plan = Plan(epochs=2, batch_size=4)
    assert close(
        TinyRun("moon", executor=Batched, data=data, plan=plan).rounds(3),
        TinyRun("moon", data=data, plan=plan).rounds(3),
    )


def test_batch_norm_is_never_shown_padding(float64: None) -> None:
    model = tiny_model("resnet18", norm="batch")
    plan = Plan(epochs=1, batch_size=4, last_batch="pad")
    data = tiny_data((6, 10, 12, 15), dtype=torch.float64)  # no batch of one, of which nothing can be normalised
    run = TinyRun("fedavg", data=data, model=model, plan=plan, executor=Batched)
    with pytest.warns(RuntimeWarning, match="batch norm cannot be shown padding"):
        run.rounds(1)
    same = TinyRun("fedavg", data=data, model=tiny_model("resnet18", norm="batch"), plan=plan)
    assert close(run, same.rounds(1))


class ShiftedBy:
    """Every client sees its inputs moved by its own number."""

    def __call__(self, client: int, index: np.ndarray[Any, Any], x: torch.Tensor) -> torch.Tensor:
        return x + client


@pytest.mark.parametrize("transform", [None, ShiftedBy()])
@pytest.mark.parametrize("budget", [0, 1 << 30])
def test_samples_are_the_clients_own_wherever_they_lie(transform: Any, budget: int) -> None:
    data: FederatedData = replace(tiny_data(), transform=transform)
    site = Site(data, TinyRun("fedavg").key, torch.device("cpu"), with_test=True)
    resident = Samples(site, budget)
    assert resident.whole == (budget > 0)
    resident.bring([1, 3], 2)
    for client in (1, 3):
        x, y = data.client(client)
        rows = torch.from_numpy(resident.rows(client))
        assert torch.equal(resident.x[rows], x)
        assert torch.equal(resident.y[rows], y)
        held = resident.client(client)
        assert torch.equal(held.x, x)
        assert torch.equal(held.test_y, data.client(client, "test")[1])
        assert held.class_counts().sum() == len(y)


def test_data_that_does_not_fit_is_brought_block_by_block(float64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    never_one_by_one(monkeypatch)
    monkeypatch.setattr("accord.executors.gpu.batched.SHARE", 0.0)
    run = TinyRun("fedntd", executor=lambda s, t: Batched(s, t, lanes=2)).rounds(3)
    assert close(run, TinyRun("fedntd").rounds(3))


def test_a_task_that_cannot_be_recorded_runs_one_by_one_and_says_so_once(float64: None) -> None:
    run = TinyRun("fedavg", executor=Batched)
    executor: Any = run.executor

    def refuse(work: Any, beside: Any = None) -> Any:
        raise CaptureError("it asks for a value")

    executor.recorder.record = refuse
    with pytest.warns(RuntimeWarning, match="cannot be recorded.*it asks for a value") as caught:
        run.rounds(3)
    assert len(caught) == 1
    assert close(run, TinyRun("fedavg").rounds(3))


def test_a_recording_that_failed_voids_those_before_it(float64: None) -> None:
    run = TinyRun("fedavg", sampler=Given([0, 1, 2, 3]), executor=Batched)
    executor: Any = run.executor
    record, recorded = executor.recorder.record, list[Any]()

    def note(work: Any, beside: Any = None) -> Any:
        recorded.append(beside)
        return record(work, beside)

    executor.recorder.record = note
    run.rounds(2)
    before = len(recorded)
    run.rounds(1)
    assert len(recorded) == before  # all is known by now
    executor.recorder.failures += 1
    run.rounds(1)
    assert len(recorded) > before
    assert recorded[before] is None  # nor is the memory of those before shared
    assert close(run, TinyRun("fedavg", sampler=Given([0, 1, 2, 3])).rounds(4))


def test_a_begin_that_cannot_be_recorded_voids_the_steps(float64: None) -> None:
    run = TinyRun("fedavg", sampler=Given([0, 1, 2, 3]), executor=Batched).rounds(1)
    executor: Any = run.executor
    record, beside_what = executor.recorder.record, list[Any]()

    def fail_once(work: Any, beside: Any = None) -> Any:
        beside_what.append(beside)
        if len(beside_what) == 1:
            executor.recorder.failures += 1
            raise CaptureError("it asks for a value")
        return record(work, beside)

    executor.recorder.record = fail_once
    run.rounds(1)
    assert beside_what[0] is not None  # a begin was recorded beside the steps of the first round
    assert beside_what[1] is None  # and after it failed, the steps anew
    assert close(run, TinyRun("fedavg", sampler=Given([0, 1, 2, 3])).rounds(2))


def test_a_step_that_reads_other_clients_data_is_found_out(float64: None) -> None:
    run = TinyRun("fedavg", executor=Batched)
    task: Any = run.algorithm.tasks["train"]

    class Reading(type(task)):  # type: ignore[misc]
        def step(self, job: Any, carry: Any, batch: Any) -> Any:
            assert len(job.data.y)
            return super().step(job, carry, batch)

    reading = Reading(**{name: getattr(task, name) for name in task.__dataclass_fields__})
    executor: Any = run.executor
    executor.tasks = {"train": reading}
    with pytest.warns(RuntimeWarning, match=r"it reads job\.data\.y in a step"):
        run.rounds(1)  # not recorded, but run as its author wrote it
    assert close(run, TinyRun("fedavg").rounds(1))


def test_begin_is_recorded_only_while_it_looks_at_no_data(float64: None) -> None:
    run = TinyRun("fedavg", executor=Batched)
    task: Any = run.algorithm.tasks["train"]
    begun: list[bool] = []

    class Curious(type(task)):  # type: ignore[misc]
        def begin(self, job: Any) -> Any:
            begun.append(True)
            if len(begun) > 4:  # from the second round on, after lanes were made for a begin that looks at nothing
                assert len(job.data.y)
            return super().begin(job)

    executor: Any = run.executor
    executor.tasks = {"train": Curious(**{name: getattr(task, name) for name in task.__dataclass_fields__})}
    run.rounds(3)
    assert close(run, TinyRun("fedavg").rounds(3))


@pytest.mark.parametrize(("sizes", "together_in_round"), [((9, 9, 9, 9), 4), ((9, 9, 6, 9), 3), ((9, 9, 10, 9), 0)])
@pytest.mark.parametrize("last", ["pad", "fill", "drop"])
def test_clients_of_one_size_close_together(
    sizes: tuple[int, ...], together_in_round: int, last: Any, float64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FedUFO's discriminator learns after the last step: from the second time on in one recording (each stage has
    its own), if those that step longest are of one size."""
    never_one_by_one(monkeypatch)
    recorded: list[int] = []
    usual = Lane.close
    monkeypatch.setattr(Lane, "close", lambda self, *given: (recorded.append(1), usual(self, *given)))
    options: dict[str, Any] = {
        "data": tiny_data(sizes=sizes, dtype=torch.float64),
        "plan": Plan(epochs=2, batch_size=4, last_batch=last),
    }
    settings = {"disc_epochs": 2, "stage_one_rounds": 1}
    together = TinyRun("fedufo", settings, executor=Batched, **options).rounds(4)
    assert len(recorded) == 2 * together_in_round
    alone = TinyRun("fedufo", settings, **options).rounds(4)
    assert close(together, alone)
    for name, value in alone.state["discriminator"].items():
        assert torch.allclose(together.state["discriminator"][name], value, rtol=1e-10, atol=1e-12)


def test_a_close_that_cannot_be_recorded_is_done_client_by_client(
    float64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where a recording finds out before anything was done."""
    tried: list[bool] = []
    usual = Recorder.record

    def record(self: Recorder, work: Any, beside: Any = None) -> Recording:
        if isinstance(work.args[0], list) and work.args[0][0].func.__name__ == "close":
            tried.append(True)
            raise CaptureError("operation not permitted when stream is capturing")
        return usual(self, work, beside)

    monkeypatch.setattr(Recorder, "record", record)
    data = tiny_data(sizes=(9, 9, 9), dtype=torch.float64)
    together = TinyRun("feduad", executor=Batched, data=data).rounds(4)
    assert tried == [True]
    assert close(together, TinyRun("feduad", data=data).rounds(4))


def test_a_client_that_fails_leaves_the_others_their_round(float64: None) -> None:
    run = TinyRun("fedavg", executor=Batched, tolerate=0.25)
    task: Any = run.algorithm.tasks["train"]

    class Failing(type(task)):  # type: ignore[misc]
        def begin(self, job: Any) -> Any:
            if int(job.info["client"]) == 1:
                raise ValueError("broken disk")
            return super().begin(job)

    executor: Any = run.executor
    executor.tasks = {"train": Failing(**{name: getattr(task, name) for name in task.__dataclass_fields__})}
    run.rounds(1)
    assert run.replies is not None
    assert run.replies.ids == (0, 2, 3)
    assert "broken disk" in run.replies.missing[1]


def test_divergence_names_the_client() -> None:
    run = TinyRun("fedavg", executor=Batched, lr=1e30, sampler=Everyone())
    with pytest.raises(DivergedError, match="client"):
        run.rounds(3)


def test_running_out_of_memory_halves_the_block_and_gives_up_at_one(
    float64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = TinyRun("fedavg", executor=Batched)
    executor: Any = run.executor
    sizes: list[int] = []

    def no_room(request: Any, task: Any, shared: Any, block: Any) -> Any:
        sizes.append(len(block))
        raise torch.cuda.OutOfMemoryError("no room")

    monkeypatch.setattr(executor, "_block", no_room)
    with pytest.warns(RuntimeWarning, match="does not fit into memory"):
        run.rounds(2)
    assert sizes == [4, 2, 1]
    assert close(run, TinyRun("fedavg").rounds(2))


def test_lanes_that_fail_where_no_client_does_are_given_up(float64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    run = TinyRun("fedavg", executor=Batched)

    def broken(*_: Any) -> Any:
        raise RuntimeError("a kernel is missing")

    monkeypatch.setattr(run.executor, "_block", broken)
    with pytest.warns(RuntimeWarning, match="a kernel is missing"):
        run.rounds(2)
    assert close(run, TinyRun("fedavg").rounds(2))


def test_progress_counts_all_clients() -> None:
    seen: list[tuple[int, int]] = []
    run = TinyRun(
        "fedavg", executor=lambda s, t: Batched(s, t, lambda done, total: seen.append((done, total)), lanes=2)
    )
    run.rounds(1)
    assert seen[-1] == (4, 4)


def test_samples_clipped_one_by_one_side_by_side(float64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches drawn sample by sample are padded to few widths; without noise the numbers are those of one by one."""
    never_one_by_one(monkeypatch)
    plan = Plan(epochs=2, batch_size=4, poisson=True)
    options: dict[str, Any] = {"plan": plan, "sampler": COHORTS, "private": PerSample(0.3, 0.0)}
    side_by_side = TinyRun("scaffold", executor=Batched, **options).rounds(3)
    assert close(side_by_side, TinyRun("scaffold", **options).rounds(3))
    noisy = TinyRun("scaffold", executor=Batched, **{**options, "private": PerSample(0.3, 1.0)}).rounds(1)
    assert not close(noisy, TinyRun("scaffold", executor=Batched, **options).rounds(1), 1e-2)
