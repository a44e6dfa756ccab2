"""The forked pool: equal bits, growing messages, clients that fail."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accord.core.task import Part
from accord.core.view import View
from accord.errors import DivergedError, RunError
from accord.executors import processes, worker
from accord.executors.processes import Processes, cores
from accord.executors.registry import NEVER
from accord.executors.worker import SLACK
from accord.parts.averaging import averaging
from support.federation import TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup


@dataclass(frozen=True)
class Trouble(Part):
    """Does something unpleasant on one client."""

    kind: str
    client: int = 2

    def begin(self, model: Any, job: Any) -> dict[str, Any]:
        if self.kind == "raise" and int(job.info["client"]) == self.client:
            raise ValueError("no such luck")
        return {}

    def loss(self, view: View) -> Any:
        if self.kind == "diverge" and int(view.job.info["client"]) == self.client:
            return view.whole(view.out.logits.sum() * float("nan"))
        return None

    def finish(self, model: Any, job: Any, carry: Any) -> tuple[Any, Any]:
        if self.kind == "grow":  # a reply that outgrows every arena made from the message's size
            return {"more": {"x": torch.full((3 * SLACK,), float(job.info["client"]))}}, {}
        return {}, {}


def run_with(kind: str, executor: Any = None, **options: Any) -> TinyRun:
    data, model = tiny_data(), tiny_model()
    method = averaging(tiny_setup(data, model), Trouble(kind))
    pool = partial(Processes, workers=2) if executor is None else executor
    return TinyRun(method, data=data, model=model, executor=pool, **options)


@pytest.mark.parametrize("workers", [1, 2])  # one worker writes its two outboxes in turn, twice each
def test_a_reply_larger_than_the_arena_arrives(workers: int) -> None:
    run = run_with("grow", partial(Processes, workers=workers))
    try:
        run.rounds(2)
        assert run.replies is not None
        assert [float(r.reply["more"]["x"][-1]) for r in run.replies.results] == [0.0, 1.0, 2.0, 3.0]
    finally:
        run.close()


def test_a_failing_client_is_dropped_with_its_reason() -> None:
    run = run_with("raise", tolerate=0.25)
    try:
        run.rounds(2)
        assert run.replies is not None
        assert run.replies.ids == (0, 1, 3)
        assert "no such luck" in run.replies.missing[2]
    finally:
        run.close()


def test_sequential_drops_the_same_client() -> None:
    from accord.executors.sequential import Sequential

    forked, plain = run_with("raise", tolerate=0.25), run_with("raise", Sequential, tolerate=0.25)
    try:
        assert equal_trees(forked.rounds(2).state, plain.rounds(2).state)
    finally:
        forked.close()


def test_diverged_training_names_round_client_and_loss() -> None:
    run = run_with("diverge")
    try:
        with pytest.raises(DivergedError, match=r"round 1 on client 2: mean loss nan"):
            run.rounds(1)
    finally:
        run.close()


def test_a_failing_client_ends_the_run_unless_that_is_tolerated() -> None:
    run = run_with("raise")
    try:
        with pytest.raises(RunError, match=r"1 of 4 clients failed in task 'train'.*clients\.tolerate") as caught:
            run.rounds(1)
        assert "client 2: " in str(caught.value)
        assert "no such luck" in str(caught.value)
    finally:
        run.close()


def test_simulated_drop_outs_follow_the_seed() -> None:
    from accord.executors.sequential import Sequential

    def missing() -> list[int]:
        run = run_with("none", Sequential)
        exchange = run.exchange()
        exchange.drop_rate = 0.5
        _, replies = run.algorithm.round(run.state, run.world(), exchange)
        return sorted(replies.missing)

    assert missing() == missing() != []


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no affinity to speak of")
@pytest.mark.parametrize("missing", [0, 1])
def test_each_worker_has_its_core_where_the_pool_has_them_all(missing: int) -> None:
    count = cores() - missing
    if count == 0:
        pytest.skip("one core: there is no smaller pool")
    run = run_with("none", partial(Processes, workers=count))
    try:
        run.rounds(1)
        assert isinstance(run.executor, Processes)
        places = [os.sched_getaffinity(worker.process.pid or 0) for worker in run.executor.workers]
        everywhere = os.sched_getaffinity(0)
        assert places == ([everywhere] * count if missing else [{core} for core in sorted(everywhere)])
    finally:
        run.close()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no affinity to speak of")
def test_a_run_beside_others_has_its_share_of_the_cores_and_keeps_to_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_SHARE", [])
    processes.share_cores(1)
    assert cores() == 1
    assert Processes.pays(torch.device("cpu"), 10) == NEVER, "one core is the sequential executor's"
    run = run_with("none", partial(Processes, workers=1))
    try:
        run.rounds(1)
        assert isinstance(run.executor, Processes)
        (worker,) = run.executor.workers
        assert os.sched_getaffinity(worker.process.pid or 0) == os.sched_getaffinity(0)
    finally:
        run.close()


def test_the_server_keeps_to_one_thread_while_its_workers_train_and_has_its_own_afterwards() -> None:
    before, seen = torch.get_num_threads(), []
    try:
        torch.set_num_threads(3)
        pool = partial(Processes, workers=1, done=lambda done, total: seen.append(torch.get_num_threads()))
        run = run_with("none", pool)
        run.rounds(1)
        run.close()
        assert set(seen) == {1}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_how_a_worker_ended_is_told() -> None:
    from accord.executors.processes import _epitaph

    assert _epitaph(-9).startswith("its worker was killed 3 times (exit code -9): ")
    for code in (0, 1, None):
        assert _epitaph(code).startswith(f"its worker ended 3 times (exit code {code}): ")


def test_room_is_made_where_there_is_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes by hand; ten of them are slack. An answer may be twice the broadcast and what was sent alone."""
    monkeypatch.setattr(processes, "SLACK", 10)
    monkeypatch.setattr(worker, "SLACK", 1)  # of an arena
    monkeypatch.setattr(processes, "room", lambda trees: trees.get("bytes", 0))
    executor = Processes(TinyRun("fedavg").federation.site(), {}, workers=1)
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(executor, "_restart", lambda: made.append(executor.room))

    def ask(shared: int, *alone: tuple[int, int]) -> list[tuple[int, int]]:
        made.clear()
        works = [SimpleNamespace(private={"bytes": sent}, memory={"bytes": kept}) for sent, kept in alone]
        request: Any = SimpleNamespace(shared={"bytes": shared}, works=works)
        executor._make_room(request)
        return list(made)

    assert ask(100, (15, 5), (12, 0)) == [(20, 220)]
    assert ask(100, (20, 0)) == [(20, 220)], "nobody is at work yet"
    executor.workers = [object()]  # type: ignore[list-item]
    assert ask(100, (20, 0)) == []
    assert ask(100, (25, 5)) == [], "all of the slack"
    assert ask(100, (25, 6)) == [(31, 231)]
    assert ask(90) == []
    assert ask(150, (1, 0)) == [(31, 301)], "the larger one stays"
    assert executor.broadcast.size >= 150
    executor.workers = []
