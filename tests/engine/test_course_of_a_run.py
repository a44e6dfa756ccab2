"""What happens when in a run: names of folders, phases, checkpoints, lines of the logs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import accord
from accord.config import RunConfig, load_config
from accord.core.types import Replies, Result
from accord.engine import loop
from accord.engine.exchange import EmptyRound
from accord.engine.folder import new_folder, plain_name
from accord.engine.logs import versions
from accord.engine.profile import Stopwatch, _Enough, _Rounds
from accord.errors import ConfigError, DivergedError
from support.federation import TinyRun

SMALL = ["data.limit=90", "partition.clients=3", "partition.name=iid", "clients.fraction=1.0", "model.name=mlp"]
SMALL += ["model.hidden=[4]", "executor=sequential"]


def config(out: Path, *sets: str) -> RunConfig:
    return load_config(None, [*SMALL, f"out={out}", *sets])


def test_folders_are_numbered_from_two(tmp_path: Path) -> None:
    settings = config(tmp_path, "algorithm.name=fedprox", "seed=7")
    names = [new_folder(settings, {"data": {"name": "my data/X"}}).name for _ in range(3)]
    assert names == ["fedprox-my_data_X-s7", "fedprox-my_data_X-s7-2", "fedprox-my_data_X-s7-3"]
    named = config(tmp_path, "name=mine")
    assert new_folder(named, {"data": {"name": "x"}}) == tmp_path / "mine"
    with pytest.raises(ConfigError, match="exists already"):
        new_folder(named, {"data": {"name": "x"}})
    assert plain_name("a/b\\c d") == "a_b_c_d"
    assert plain_name("x" * 200) == "x" * 80
    assert plain_name("///") == "_"
    assert plain_name("") == "data"
    assert set(versions()) == {"accord", "torch", "numpy", "safetensors", "python"}


class Notes(accord.Observer):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def phase(self, round: int, name: str) -> None:
        self.heard.append((round, name))

    def round_ended(self, round: int, record: Any) -> None:
        self.heard.append(round)


@pytest.mark.parametrize(
    ("every", "saved"), [(3, [3, 6, 7]), (1, [1, 2, 3, 4, 5, 6, 7]), (0, []), (7, [7]), (9, [7])], ids=str
)
def test_checkpoints_come_every_so_often_and_at_the_end(tmp_path: Path, every: int, saved: list[int]) -> None:
    notes = Notes()
    settings = config(tmp_path, "rounds=7", f"checkpoint.every={every}", "checkpoint.keep=20", "evaluate.every=4")
    outcome = accord.run(settings, observers=[notes])
    folders = sorted(path.name for path in (outcome.folder / "checkpoint").glob("round-*"))
    assert folders == [f"round-{number:06d}" for number in saved]
    assert notes.heard == [step for r in range(1, 8) for step in ((r, "train"), (r, "evaluate"), r)]
    timings = [json.loads(line) for line in (outcome.folder / "timings.jsonl").read_text().splitlines()]
    for line in timings:
        kept = {"checkpoint"} if line["round"] in saved else set()
        assert set(line) == {"round", "train", "evaluate"} | kept
        assert all(seconds >= 0 for seconds in line.values())
    assert [record["round"] for record in outcome.metrics if "accuracy" in record] == [4, 7]


def test_what_a_method_sends_before_the_first_round_is_in_its_line_alone(tmp_path: Path) -> None:
    settings = config(tmp_path, "rounds=2", "algorithm.name=fedbr", "algorithm.every_round=false")
    first, second = accord.run(settings).metrics
    assert first["start_bytes_up"] > 0
    assert "start_bytes_up" not in second
    plain = accord.run(config(tmp_path, "rounds=1")).metrics[0]
    assert not {"start_bytes_up", "start_bytes_down"} & plain.keys()


def test_a_rounds_line_by_hand() -> None:
    """The loss is a mean over samples seen: (6 + 1) / (3 + 1)."""

    def result(loss: float, seen: float) -> Result:
        metrics = {"loss": torch.tensor(loss), "seen": torch.tensor(seen)}
        return Result({}, {}, metrics)

    exchange: Any = TinyRun("fedavg").exchange()
    exchange.bytes_up, exchange.bytes_down = 5, 7
    exchange.missing = {9: "Traceback\n  line\nValueError: x\n", 3: "gone"}
    replies = Replies((2, 4), (result(6.0, 3.0), result(1.0, 1.0)), torch.tensor([3, 1]), {})
    assert loop._record(4, replies, exchange) == {
        "round": 5,
        "loss": 1.75,
        "cohort": [2, 4],
        "bytes_up": 5,
        "bytes_down": 7,
        "missing": {"3": "gone", "9": "ValueError: x"},
    }
    idle = Replies((2,), (result(0.0, 0.0),), torch.tensor([3]), {})
    assert loop._record(0, idle, exchange)["loss"] is None


def counted(value: float) -> dict[str, Any]:
    return {"model": {"w": torch.tensor([value])}}


class Adding:
    """A method that adds one a round; in the round of number 3 nobody is there."""

    def __init__(self, ends: float = 1.0) -> None:
        self.seen: list[Any] = []
        self.ends = ends

    def round(self, state: Any, world: Any, exchange: Any) -> Any:
        self.seen.append((float(state["model"]["w"]), world, exchange.number))
        if exchange.number == 3:
            exchange.missing = {4: "away"}
            raise EmptyRound("nobody was there")
        found = Result({}, {}, {"loss": torch.tensor(1.0), "seen": torch.tensor(2.0)})
        return counted(float(state["model"]["w"]) + self.ends), Replies((7,), (found,), torch.tensor([2]), {})

    def metrics(self, state: Any) -> dict[str, float]:
        return {"sum": float(state["model"]["w"])}


def test_rounds_follow_from_the_state_the_one_before_left() -> None:
    method: Any = Adding()
    judged: list[Any] = []
    told: list[Any] = []

    def judge(round: int, old: Any, new: Any, replies: Any) -> dict[str, Any]:
        judged.append((round, float(old["model"]["w"]), float(new["model"]["w"]), replies.ids, dict(replies.missing)))
        return {"judged": round}

    def exchange(number: int) -> Any:
        return SimpleNamespace(number=number, bytes_up=1, bytes_down=2, missing={})

    rounds = loop.Loop(method, lambda round: f"world {round}", exchange, judge, lambda *given: told.append(given))  # type: ignore[arg-type,return-value]
    done = list(rounds.rounds(counted(10.0), 2, 5))
    assert method.seen == [(10.0, "world 2", 2), (11.0, "world 3", 3), (11.0, "world 4", 4)]
    assert judged == [(2, 10.0, 11.0, (7,), {}), (3, 11.0, 11.0, (), {4: "away"}), (4, 11.0, 12.0, (7,), {})]
    assert told == [(n, name) for n in (3, 4, 5) for name in ("train", "evaluate")]
    assert [(one.round, float(one.state["model"]["w"])) for one in done] == [(3, 11.0), (4, 11.0), (5, 12.0)]
    line = {"loss": 0.5, "cohort": [7], "bytes_up": 1, "bytes_down": 2}
    assert done[0].record == {"round": 3, **line, "server": {"sum": 11.0}, "judged": 2}
    assert done[2].record == {"round": 5, **line, "server": {"sum": 12.0}, "judged": 4}
    assert done[1].record == {
        **{"round": 4, "loss": None, "cohort": [], "bytes_up": 1, "bytes_down": 2, "missing": {"4": "away"}},
        **{"skipped": "nobody was there", "judged": 3},
    }
    assert [list(one.clock.laps) for one in done] == [["train", "evaluate"]] * 3
    broken: Any = Adding(math.inf)
    with pytest.raises(DivergedError, match=r"diverged in round 3: .* is not, in model \(w\)"):
        next(loop.Loop(broken, lambda round: None, exchange, judge).rounds(counted(1.0), 2, 5))  # type: ignore[arg-type,return-value]


def test_a_rounds_line_has_the_simulated_time_where_there_is_one() -> None:
    class Door:
        bytes_up, bytes_down, missing = 0, 0, dict[int, str]()
        seconds: float | None = 4.5

    nobody = Replies((), (), torch.zeros(0, dtype=torch.int64), {})
    door: Any = Door()
    assert loop._record(0, nobody, door)["clock"] == 4.5
    Door.seconds = None
    assert "clock" not in loop._record(0, nobody, door)
    quiet = Result({}, {}, {"seen": torch.tensor(3.0)})
    alone = Replies((2,), (quiet,), torch.tensor([3]), {})
    assert loop._record(0, alone, door)["loss"] is None, "clients may keep their losses to themselves"


def test_laps_of_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    clock = loop.Clock()
    for name, seconds in (("train", 2.5), ("evaluate", 0.25)):
        now[0] += seconds
        clock.lap(name)
    assert clock.laps == {"train": 2.5, "evaluate": 0.25}


def test_a_profile_forgets_the_first_round_and_ends_with_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("accord.engine.profile.time.perf_counter", lambda: now[0])
    watch = Stopwatch(torch.device("cpu"))
    rounds = _Rounds(watch, 3)
    for number, seconds in ((1, 100.0), (2, 4.0), (3, 6.0)):
        rounds.phase(number, "train")
        now[0] += seconds
        rounds.phase(number, "evaluate")
        now[0] += 1
        if number < 3:
            rounds.round_ended(number, {})
    with pytest.raises(_Enough):
        rounds.round_ended(3, {})
    assert watch.seconds["aggregate"] == 10.0
    assert watch.seconds["engine"] == 2.0
