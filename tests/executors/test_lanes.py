"""Which lanes step when, what is recorded and what is done again: by hand, on a CPU that records nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accord.core.types import Result
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


def plain(task: Any = None, count: int = 3) -> Any:
    """Lanes of a pretended task."""
    lanes: Any = Lanes(task, 4, Recorder(torch.device("cpu")))
    lanes.lanes = [SimpleNamespace(number=number) for number in range(count)]
    return lanes


def test_a_block_from_its_first_step_to_its_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three, three and two steps: the first two of one length close together, when they are through."""
    said: list[Any] = []

    def note(name: str, gives: Any = None) -> Any:
        return lambda shared, data, *more: said.append((name, *more)) or gives

    lanes = plain()
    for name in ("_begin", "_advance"):
        monkeypatch.setattr(lanes, name, note(name))
    monkeypatch.setattr(lanes, "_close", note("_close", True))
    monkeypatch.setattr(lanes, "_lay_together", lambda data, room: said.append(("room", room)))
    monkeypatch.setattr(lanes, "_take_out", lambda lane, client, closed: said.append(("out", lane, closed)) or lane)
    filled: list[Any] = []
    lanes.tables = SimpleNamespace(lanes=3, fill=lambda *given: filled.append(given))
    data: Any = SimpleNamespace(rows=lambda client: f"rows of {client}", y="labels", num_classes=2)
    clients: Any = [
        SimpleNamespace(batches=[0] * steps, work=SimpleNamespace(client=client))
        for client, steps in ((8, 3), (4, 3), (6, 2))
    ]
    lanes.clients, lanes._seated = list(clients), 2
    found = list(lanes.run({}, data, 7))
    assert found == [(clients[2], 2), (clients[1], 1), (clients[0], 0)]
    assert filled == [(clients, ["rows of 8", "rows of 4", "rows of 6"], "labels")]
    assert said == [
        *(("room", 7), ("_begin", clients[:2])),
        *(("_advance", 3, 3, 2), ("out", 2, False)),
        *(("_advance", 2, 3, 1), ("_close", clients[:2]), ("out", 1, True)),
        *(("_advance", 1, 3, 0), ("out", 0, True)),
    ]
    assert (lanes.clients, lanes._seated) == ([], 0)
    said.clear()
    lanes.clients = list(clients[:1])  # one that has begun by itself
    list(lanes.run({}, data, 7))
    assert said == [("room", 7), ("_advance", 1, 1, 3), ("_close", clients[:1]), ("out", 0, True)]


def test_clients_of_one_size_are_closed_in_one_recording_from_the_second_time_on() -> None:
    closed: list[Any] = []
    lanes = plain()
    lanes._closes_apart = True
    for lane in lanes.lanes:
        lane.close = lambda shared, none, examples, number=lane.number: closed.append((number, shared, examples))
    data: Any = SimpleNamespace(num_classes=2)

    def close(*sizes: int) -> bool:
        return bool(lanes._close("shared", data, [SimpleNamespace(examples=size) for size in sizes]))

    assert [close(5, 5), close(5, 5), close(5, 6), close(5, 6), close(6, 6)] == [False, True, False, False, False]
    assert closed == [(0, "shared", 5), (1, "shared", 5)]
    assert close(5, 5)
    assert len(closed) == 4
    lanes._closes_apart = False
    assert not close(5, 5)


@pytest.mark.parametrize("closed", [True, False])
def test_a_result_is_of_the_clients_own_rows_and_free_of_its_lane(closed: bool) -> None:
    """One that was closed with the others only answers."""
    held = torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([3.0])
    asked: list[Any] = []

    def gives(name: str) -> Any:
        def answer(job: Any, carry: Any) -> Result:
            asked.append((name, job, carry))
            return Result({"r": {"w": held[0]}}, {"m": {"s": held[1]}}, {"loss": held[2]})

        return answer

    lanes = plain(SimpleNamespace(answer=gives("answer"), finish=gives("finish")))
    lanes.lanes[1].carry = SimpleNamespace(like=lambda examples: f"{examples} rows", value="all rows")
    client: Any = SimpleNamespace(job="the job", examples=5)
    found = lanes._take_out(1, client, closed)
    assert asked == [("answer" if closed else "finish", "the job", "5 rows")]
    for tensor in held:
        tensor.zero_()  # the next client
    assert (found.reply["r"]["w"].item(), found.memory["m"]["s"].item(), found.metrics["loss"].item()) == (1, 2, 3)


def test_once_a_client_looked_at_its_data_none_is_begun_with_others() -> None:
    lanes = plain()
    for lane in lanes.lanes:
        lane.moved, lane.seat, lane.carry = 0, lambda job, most: None, SimpleNamespace(load=lambda carry, most: None)
    for touched, alone in ((False, True), (True, False), (False, False)):
        client: Any = SimpleNamespace(job=SimpleNamespace(data=SimpleNamespace(touched=touched)))
        lanes.load(client, {}, 5)
        assert lanes.begins_alone is alone


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
