"""Which lanes step when, what is recorded and what is done again: by hand, on a CPU that records nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accord.executors.gpu.batched import Batched
from accord.executors.gpu.graphs import CaptureError, Recorder, Recording
from accord.executors.gpu.lanes import Lanes
from accord.executors.gpu.precision import numerics
from support.federation import TinyRun


class Noting(Recorder):
    """Notes what is recorded, and beside what."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.recorded: list[Recording] = []
        self.beside: list[Recording | None] = []

    def record(self, work: Any, beside: Recording | None = None) -> Recording:
        self.beside.append(beside)
        self.recorded.append(super().record(work, beside))
        return self.recorded[-1]


def lanes_of(run: TinyRun) -> Lanes:
    executor: Any = run.executor
    (lanes,) = executor._lanes["train"].values()
    return lanes


def test_the_longest_go_on_when_the_others_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """6, 9, 12 and 15 samples in batches of 4, twice: 4, 6, 6 and 8 steps."""
    asked: list[tuple[int, int, int]] = []
    advance = Lanes._advance

    def note(self: Lanes, shared: Any, data: Any, *how: int) -> None:
        asked.append(how)  # type: ignore[arg-type]
        advance(self, shared, data, *how)

    monkeypatch.setattr(Lanes, "_advance", note)
    TinyRun("fedavg", executor=Batched).rounds(1)
    assert asked == [(4, 4, 4), (3, 4, 2), (2, 4, 0), (1, 4, 2)]


def test_what_was_recorded_is_done_again_in_the_next_round() -> None:
    run = TinyRun("fedavg", executor=Batched)
    executor: Any = run.executor
    executor.recorder = noting = Noting()
    run.rounds(1)
    lanes = lanes_of(run)
    assert len(noting.recorded) == 1, "one step of all lanes, after it was done once without"
    assert noting.beside == [None]
    tables, steps = lanes.tables, dict(lanes._steps)
    assert list(steps) == [4]
    assert lanes.begins_alone
    assert lanes.ready
    run.rounds(1)
    assert len(noting.recorded) == 2, "and how all of them begin"
    assert noting.beside[1] is steps[4]
    run.rounds(1)
    assert len(noting.recorded) == 2
    assert (lanes_of(run), lanes.tables) == (lanes, tables)
    assert lanes._steps == steps
    assert list(lanes._begins) == [4]


def test_clients_begin_together_once_their_lanes_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    run = TinyRun("fedavg", executor=Batched)
    lanes = Lanes(run.algorithm.tasks["train"], 4, Recorder(torch.device("cpu")))
    assert lanes.begins_alone
    assert not lanes.ready, "no lane was made yet"
    run.rounds(1)
    monkeypatch.setattr(Lanes, "load", None)
    run.rounds(1)
    assert run.replies is not None
    assert run.replies.ids == (0, 1, 2, 3)


@pytest.mark.parametrize(("seat_moves", "carry_moves", "forgotten"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (1, 1, 2)])
@pytest.mark.parametrize("touched", [False, True])
def test_recordings_are_void_where_a_buffer_moved(
    seat_moves: int, carry_moves: int, forgotten: int, touched: bool
) -> None:
    lanes = Lanes(TinyRun("fedavg").algorithm.tasks["train"], 4, Recorder(torch.device("cpu")))
    voided: list[bool] = []
    lanes.forget = lambda: voided.append(True)  # type: ignore[method-assign]
    lane = SimpleNamespace(moved=3)

    def seat(job: Any, most: int) -> None:
        lane.moved += seat_moves

    def load(carry: Any, most: int) -> None:
        lane.moved += carry_moves

    lane.seat, lane.carry = seat, SimpleNamespace(load=load)
    lanes.lanes = [lane, lane]  # type: ignore[list-item]
    client: Any = SimpleNamespace(job=SimpleNamespace(data=SimpleNamespace(touched=touched)))
    lanes.load(client, {}, 15)
    assert (len(voided), lanes.clients, lanes._most) == (forgotten, [client], 15)
    assert lanes.begins_alone is not touched, "one that looks at its data cannot be recorded"
    assert lanes.ready is not touched
    voided.clear()
    lanes.seat(client, 15)
    assert (len(voided), lanes._seated) == (seat_moves, 2)
    assert not lanes.ready


@pytest.mark.parametrize(
    ("steps", "directly", "recorded", "replayed"), [(0, 0, 0, 0), (1, 1, 0, 0), (2, 1, 1, 1), (5, 1, 1, 4)]
)
def test_the_first_step_is_done_before_it_is_recorded(
    steps: int, directly: int, recorded: int, replayed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = Lanes(TinyRun("fedavg").algorithm.tasks["train"], 4, Recorder(torch.device("cpu")))
    done: list[str] = []
    monkeypatch.setattr(lanes, "_step", lambda shared, data, size: done.append("step"))

    class Counting:
        def record(self, work: Any, beside: Any) -> Any:
            done.append("record")
            return SimpleNamespace(replay=lambda: done.append("replay"))

    monkeypatch.setattr(lanes, "recorder", Counting())
    nothing: Any = None
    lanes._advance(nothing, nothing, 2, 3, steps)
    assert done == ["step"] * directly + ["record"] * recorded + ["replay"] * replayed
    assert list(lanes._steps) == [3] * recorded
    done.clear()
    lanes._advance(nothing, nothing, 2, 3, 3)
    expected = ["replay"] * 3 if recorded else ["record", *["replay"] * 3]
    assert done == (["step", "record", "replay", "replay"] if not directly else expected)


def test_where_a_begin_cannot_be_recorded_every_client_begins_by_itself() -> None:
    """Now and from now on; lanes whose clients have begun already are left alone."""
    loaded: list[tuple[int, str]] = []
    task: Any = SimpleNamespace(begin=lambda job: f"begun {job}")
    lanes = Lanes(task, 4, Recorder(torch.device("cpu")))

    def lane(number: int) -> Any:
        carry = SimpleNamespace(load=lambda carry: loaded.append((number, carry)))
        return SimpleNamespace(begin=len, carry=carry)

    lanes.lanes = [lane(number) for number in range(3)]
    clients: Any = [SimpleNamespace(job="a"), SimpleNamespace(job="b")]
    data: Any = SimpleNamespace(num_classes=3)
    begun: list[str] = []
    replaying = SimpleNamespace(replay=lambda: begun.append("all"))
    recorder: Any = SimpleNamespace(record=lambda work, beside: replaying, side_by_side=list, failures=0)
    lanes.recorder = recorder
    lanes._begin({}, data, clients)
    lanes._begin({}, data, clients)
    assert (begun, loaded, lanes.begins_alone, list(lanes._begins)) == (["all", "all"], [], True, [2])

    def refuse(work: Any, beside: Any) -> Any:
        raise CaptureError("it looks at a value")

    recorder.record = refuse
    lanes._begin({}, data, clients[:1])
    assert (loaded, lanes.begins_alone) == ([(0, "begun a")], False)


def test_how_exactly_is_multiplied_is_put_back() -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn

    def now() -> tuple[bool, bool, bool]:
        return matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic

    before = now()
    try:
        for first in ((False, True, False), (True, False, True)):
            matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = first
            for precision, rounds in (("fp32", False), ("tf32", True), ("bf16", True)):
                with numerics(precision):
                    assert now() == (rounds, rounds, True)
                assert now() == first
            with pytest.raises(ValueError, match="inside"), numerics("tf32"):
                raise ValueError("inside")
            assert now() == first
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = before
