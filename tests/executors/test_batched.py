"""Lanes without a GPU: nothing is recorded, but everything around the recording is the same."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from accord.client import Request, Site, Work
from accord.core.persample import PerSample
from accord.core.plan import Plan
from accord.data.federated import FederatedData, Groups
from accord.errors import DivergedError
from accord.executors.gpu.batched import Batched
from accord.executors.gpu.buffers import MisfitError
from accord.executors.gpu.graphs import CaptureError, Recorder, Recording
from accord.executors.gpu.lane import Lane
from accord.executors.gpu.samples import Samples
from accord.executors.sequential import Sequential
from support.federation import Everyone, Given, TinyRun, equal_trees, tiny_data, tiny_model

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


@pytest.mark.parametrize("budget", [0, 1 << 30])
def test_samples_that_clients_see_in_their_own_way_lie_client_by_client(budget: int) -> None:
    """Clients hold samples of the pool in any order, some of them the same."""
    groups = Groups.of([[9, 2], [5], [2, 0, 7]])
    data = replace(tiny_data(), transform=ShiftedBy(), train=groups, validation=groups, test=groups)
    samples = Samples(Site(data, TinyRun("fedavg").key, torch.device("cpu")), budget)
    samples.bring([0, 1, 2], 3)
    for client, held in enumerate(([9, 2], [5], [2, 0, 7])):
        rows = torch.from_numpy(samples.rows(client))
        assert torch.equal(samples.x[rows], data.train_pool.x[held] + client)
        assert torch.equal(samples.y[rows], data.train_pool.y[held])


@pytest.mark.parametrize("budget", [0, 1 << 30])
def test_labels_lie_on_the_device_as_they_are(budget: int) -> None:
    data = tiny_data()
    for labels in (torch.arange(42) / 4, torch.stack([torch.arange(42.0), torch.ones(42)], 1)):
        some = replace(data, train_pool=replace(data.train_pool, y=labels))
        samples = Samples(Site(some, TinyRun("fedavg").key, torch.device("cpu")), budget)
        samples.bring([2], 1)
        held = samples.client(2)
        assert torch.equal(held.y, labels[torch.from_numpy(data.train[2])])
        assert held.y.dtype == labels.dtype


def test_all_samples_lie_on_the_device_if_they_fit() -> None:
    """42 samples of 64 numbers of 4 bytes, and a label of 8; with a transform each client's are its own."""
    data = tiny_data()
    for transform, clients, count in ((None, 4, 42), (ShiftedBy(), 4, 42), (None, 2, 42), (ShiftedBy(), 2, 15)):
        some = replace(data, transform=transform)
        if clients == 2:
            groups = Groups.of([data.train[0], data.train[1]])
            some = replace(some, train=groups, validation=Groups.of([[], []]), test=groups)
        site = Site(some, TinyRun("fedavg").key, torch.device("cpu"))
        exact = count * (64 * 4 + 8)
        assert Samples(site, exact).whole
        assert len(Samples(site, exact).y) == count
        assert not Samples(site, exact - 1).whole


def test_samples_are_brought_into_room_for_the_largest_block() -> None:
    """Of clients with 6, 9, 12 and 15 samples two at once are 27 at most."""
    data = tiny_data()
    site = Site(data, TinyRun("fedavg").key, torch.device("cpu"))
    samples = Samples(site, 0)
    assert samples.bring([1, 0], 2), "there was no room yet"
    assert (len(samples.x), len(samples.y)) == (27, 27)
    assert (samples.rows(1).tolist(), samples.rows(0).tolist()) == (list(range(9)), list(range(9, 15)))
    where = samples.x.data_ptr()
    assert not samples.bring([2, 3], 2)
    assert samples.x.data_ptr() == where, "recorded steps read it there"
    assert samples.rows(3).tolist() == list(range(12, 27))
    with pytest.raises(KeyError):
        samples.rows(0)
    assert samples.bring([0, 1, 2], 3)
    assert len(samples.y) == 36
    assert not Samples(site, 1 << 30).bring([0], 4)


def test_test_samples_are_there_for_those_who_may_have_them() -> None:
    data = tiny_data()
    data = replace(data, test=Groups.of([data.test[0][:2], [], data.test[2], data.test[3]]))
    for with_test in (True, False):
        samples = Samples(Site(data, TinyRun("fedavg").key, torch.device("cpu"), with_test=with_test), 1 << 30)
        held = [samples.client(client) for client in range(4)]
        assert [one.has_test for one in held] == [with_test, False, with_test, with_test]
        assert not any(one.touched for one in held)  # type: ignore[attr-defined]
        assert len(held[0].test_y) == len(held[0].test_x) == (2 if with_test else 0)
        assert [one.touched for one in held] == [True, False, False, False]  # type: ignore[attr-defined]
        assert held[0].x is held[0].x, "gathered once"


@pytest.mark.parametrize("hands_over", [False, True])
def test_dropout_of_a_block_follows_from_its_first_client_its_task_and_its_round(
    hands_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clients of a block go longest first, and the one with the lowest number speaks for all."""
    seeds: list[int] = []
    monkeypatch.setattr("accord.executors.gpu.batched.seed_torch", lambda seed, device: seeds.append(seed))
    run = TinyRun("fedavg")
    task: Any = run.algorithm.tasks["train"]
    tasks = {"personal" if hands_over else "train": replace(task, hands_over=hands_over)}
    executor = Batched(run.federation.site(), tasks, lanes=2)
    message = run.algorithm.message(run.state)
    (name,) = tasks
    before = torch.random.get_rng_state()
    executor.run(Request(name, 5, 0.1, message, [Work(client, {}, None) for client in (1, 0, 3)]))
    assert torch.equal(torch.random.get_rng_state(), before)
    site = run.federation.site()
    assert seeds == [site.draws(client, "train", 5).torch_seed() for client in (1, 0)]
    assert len({site.draws(k, name, r).torch_seed() for k in (0, 1) for name in ("train", "x") for r in (4, 5)}) == 8


def test_what_the_clients_of_a_block_are_given() -> None:
    """2, 3, 3 and 4 steps: those with the most come first, of equals the one with the lower number."""

    class Task:
        plan = Plan(epochs=1, batch_size=4)

        def noise(self, rng: Any, steps: int, widest: int) -> Any:
            return {"n": rng.random((steps, widest))}

        def first_memory(self, job: Any) -> Any:
            return {"first": {"w": job.info["examples"]}}

    run = TinyRun("fedavg")
    site = run.federation.site()
    executor = Batched(site, run.algorithm.tasks)
    remembers = {"kept": {"w": torch.tensor([5.0])}}
    works = [Work(2, {"own": {"w": torch.tensor([7.0])}}, None), Work(1, {}, remembers), Work(0, {}, {})]
    task: Any = Task()
    found = executor._clients(Request("other", 5, 0.25, run.algorithm.message(run.state), works), task)
    assert [client.id for client in found] == [1, 2, 0]
    assert [client.work for client in found] == [works[1], works[0], works[2]]
    assert [client.examples for client in found] == [9, 12, 6]
    one, two, nobody = (client.job for client in found)
    assert [one.memory["kept"]["w"].item(), two.memory["first"]["w"].item(), nobody.memory] == [5.0, 12.0, {}]
    assert two.private["own"]["w"].item() == 7.0
    for client, steps in zip(found, (3, 3, 2), strict=True):
        told = {name: float(value) for name, value in client.job.info.items()}
        wanted = {"client": client.id, "round": 5, "examples": client.examples, "steps": steps, "lr": 0.25}
        assert told == pytest.approx(wanted)
        draws = site.draws(client.id, "other", 5)
        assert np.array_equal(client.draws["n"], draws.noise().random((steps, 4)))
        order = draws.order().permutation(client.examples)
        assert np.array_equal(np.concatenate(client.batches), order)
    train: Any = run.algorithm.tasks["train"]
    handed = executor._clients(Request("other", 5, 0.25, {}, works[1:2]), replace(train, hands_over=True))
    order = np.concatenate(train.plan.schedule(site.draws(1, "train", 5).order(), 9))
    assert np.array_equal(np.concatenate(handed[0].batches), order), "as in its training"


def test_steps_alone_are_work_for_lanes(float64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    never_one_by_one(monkeypatch)
    plan = Plan(epochs=0, steps=3, batch_size=4)
    assert close(TinyRun("fedavg", executor=Batched, plan=plan).rounds(2), TinyRun("fedavg", plan=plan).rounds(2))


@pytest.mark.parametrize("name", ["evaluate", "train"])
def test_questions_and_tasks_that_were_given_up_never_come_into_lanes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = TinyRun("fedavg")
    site = run.federation.site(with_test=True)
    executor = Batched(site, run.algorithm.tasks)
    executor._unfit.add("train")
    monkeypatch.setattr(executor, "_clients", None)
    message = run.algorithm.message(run.state)
    request = Request(name, 0, 0.1, message, [Work(client, {}, None) for client in (2, 0)])
    found = executor.run(request)
    assert [answer.client for answer in found] == [2, 0]
    for answer, expected in zip(found, Sequential(site, run.algorithm.tasks).run(request), strict=True):
        assert answer.result is not None
        assert expected.result is not None
        assert equal_trees(answer.result.reply, expected.result.reply)
        assert equal_trees({"": answer.result.metrics}, {"": expected.result.metrics})


@pytest.mark.parametrize(
    ("plan", "couples", "lengths", "most", "width"),
    [
        (Plan(batch_size=4), False, [4, 4, 1], 15, 4),  # short ones are padded
        (Plan(batch_size=4), False, [3], 3, 3),  # nobody has more than three samples
        (Plan(batch_size=0), False, [5], 15, 5),  # all of a client's samples
        (Plan(batch_size=0), False, [], 15, 1),
        (Plan(batch_size=4), True, [4, 4], 15, 4),
        (Plan(batch_size=4, last_batch="fill"), True, [4, 4], 15, 4),
        (Plan(batch_size=4, last_batch="drop"), False, [4], 15, 4),
        (Plan(batch_size=4, poisson=True), False, [3, 6, 2], 15, 8),  # as wide as the widest, in fours
        (Plan(batch_size=4, poisson=True), False, [2, 4], 15, 4),
        (Plan(batch_size=4, poisson=True), True, [14, 1], 15, 15),  # but no wider than anybody's data
        (Plan(batch_size=4, poisson=True), False, [0, 0], 15, 4),
        (Plan(batch_size=4, poisson=True), False, [], 15, 4),
        (Plan(batch_size=1, poisson=True), False, [], 15, 1),
        (Plan(batch_size=0, poisson=True), False, [6], 15, 15),
        (Plan(batch_size=4, poisson=True), False, [], 0, 1),
    ],
)
def test_how_wide_a_step_is(plan: Plan, couples: bool, lengths: list[int], most: int, width: int) -> None:
    task: Any = SimpleNamespace(plan=plan, model=SimpleNamespace(couples_batch=couples))
    client: Any = SimpleNamespace(batches=[np.arange(length) for length in lengths])
    house: Any = SimpleNamespace(most=most)
    assert Batched._width(house, task, client) == width
    if plan.last_batch == "pad" and not plan.poisson and plan.batch_size == 4:
        assert Batched._width(house, SimpleNamespace(plan=plan), client) == min(4, most)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("plan", "couples"), [(Plan(batch_size=4), True), (Plan(batch_size=4, last_batch="fill"), False)]
)
def test_short_batches_that_cannot_be_padded_fit_no_recording(plan: Plan, couples: bool) -> None:
    task: Any = SimpleNamespace(plan=plan, model=SimpleNamespace(couples_batch=couples))
    client: Any = SimpleNamespace(batches=[np.arange(4), np.arange(3)])
    house: Any = SimpleNamespace(most=15)
    with pytest.raises(MisfitError, match="the last batch is shorter"):
        Batched._width(house, task, client)


def test_lanes_are_dropped_where_the_samples_have_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is measured without a GPU: there is no limit but the one that was asked for."""
    run = TinyRun("fedavg", executor=lambda s, t: Batched(s, t, lanes=2))
    executor: Any = run.executor
    dropped: list[str] = []
    monkeypatch.setattr(executor, "_drop_lanes", dropped.append)
    run.rounds(1)
    assert dropped == ["train"], "a message of a new shape"
    run.rounds(1)
    assert dropped == ["train"]
    monkeypatch.setattr(executor.data, "bring", lambda clients, at_once: True)
    run.rounds(1)
    assert dropped == ["train"] * 3, "once for each of two blocks"
    assert executor.limit == {}


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
    twin = TinyRun("fedavg", tolerate=0.25)
    twin.executor.tasks = executor.tasks  # type: ignore[attr-defined]
    twin.rounds(1)
    executor.tasks = {"train": task}
    run.rounds(1)
    twin.executor.tasks = {"train": task}  # type: ignore[attr-defined]
    assert close(run, twin.rounds(1)), "nobody was left in a lane"


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
