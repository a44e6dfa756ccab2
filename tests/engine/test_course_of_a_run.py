"""What happens when in a run: names of folders, phases, checkpoints, lines of the logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import accord
from accord.config import RunConfig, load_config
from accord.core.types import Replies, Result
from accord.engine import loop
from accord.engine.folder import new_folder, plain_name
from accord.engine.logs import versions
from accord.engine.profile import Stopwatch, _Enough, _Rounds
from accord.errors import ConfigError
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
    """The loss is a mean over samples seen: (6 + 2) / (3 + 1)."""

    def result(loss: float, seen: float) -> Result:
        metrics = {"loss": torch.tensor(loss), "seen": torch.tensor(seen)}
        return Result({}, {}, metrics)

    exchange: Any = TinyRun("fedavg").exchange()
    exchange.bytes_up, exchange.bytes_down = 5, 7
    exchange.missing = {9: "Traceback\n  line\nValueError: x\n", 3: "gone"}
    replies = Replies((2, 4), (result(6.0, 3.0), result(2.0, 1.0)), torch.tensor([3, 1]), {})
    assert loop._record(4, replies, exchange) == {
        "round": 5,
        "loss": 2.0,
        "cohort": [2, 4],
        "bytes_up": 5,
        "bytes_down": 7,
        "missing": {"3": "gone", "9": "ValueError: x"},
    }
    idle = Replies((2,), (result(0.0, 0.0),), torch.tensor([3]), {})
    assert loop._record(0, idle, exchange)["loss"] is None


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
