"""Slow, late and absent clients of whole runs: who makes a round, what it costs in simulated time, and going on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import accord
from accord.config import load_config
from accord.config.tree import PaceConfig
from accord.errors import CheckpointError, ConfigError, DataError
from support.federation import Given, TinyRun, equal_trees

TINY = ("executor=sequential", "model.name=mlp", "model.hidden=[8]", "data.limit=120", "partition.name=iid")
FOUR = (*TINY, "partition.clients=4", "rounds=4", "local.steps=5", "evaluate.clients=false")


class Stop(accord.Observer):
    """Ends a run as ^C would, after a round."""

    def __init__(self, after: int) -> None:
        self.after = after

    def round_ended(self, round: int, record: Mapping[str, Any]) -> None:
        if round == self.after:
            raise KeyboardInterrupt


def devices(folder: Path, *seconds: float) -> str:
    path = folder / "devices.csv"
    lines = [f"{client},{value}" for client, value in enumerate(seconds)]
    path.write_text("\n".join(["client,seconds_per_step", *lines]))
    return str(path)


def run(folder: Path, *sets: str, **more: Any) -> Any:
    return accord.run(load_config(sets=[*FOUR, f"out={folder}", *sets]), **more)


def test_a_round_lasts_until_the_last_answer(tmp_path: Path) -> None:
    """Five steps of 0.1, 0.2, 0.4 and 0.8 s, and half a second for the way."""
    trace = devices(tmp_path, 0.1, 0.2, 0.4, 0.8)
    outcome = run(tmp_path, f"pace.devices={trace}", "pace.latency=0.5", "clients.fraction=1")
    assert [record["clock"] for record in outcome.metrics] == pytest.approx([4.5, 9.0, 13.5, 18.0])
    assert outcome.summary["clock"] == outcome.metrics[-1]["clock"]
    assert all("missing" not in record for record in outcome.metrics)
    reached = outcome.summary["rounds_to"]
    clock = {record["round"]: record["clock"] for record in outcome.metrics}
    assert outcome.summary["clock_to"] == {target: clock.get(number) for target, number in reached.items()}


def test_sending_takes_time_by_the_bytes_that_are_sent(tmp_path: Path) -> None:
    outcome = run(tmp_path, "pace.mbit=0.1", "clients.count=2")
    for before, record in zip([{"clock": 0.0}, *outcome.metrics], outcome.metrics, strict=False):
        seconds = (record["bytes_up"] + record["bytes_down"]) / 2 * 8 / 1e5
        assert record["clock"] - before["clock"] == pytest.approx(seconds)


def test_without_the_section_no_time_passes(tmp_path: Path) -> None:
    outcome = run(tmp_path)
    assert all("clock" not in record for record in outcome.metrics)
    assert not {"clock", "clock_to", "late", "not_waited_for"} & outcome.summary.keys()
    newest = sorted((outcome.folder / "checkpoint").glob("round-*"))[-1]
    assert not [name for name in load_file(newest / "server.safetensors") if name.startswith("clock")]


def test_who_is_late_is_missing_and_no_failure(tmp_path: Path) -> None:
    trace = devices(tmp_path, 0.1, 0.2, 0.4, 6.8)
    outcome = run(tmp_path, f"pace.devices={trace}", "pace.deadline=20", "clients.fraction=1")
    for record in outcome.metrics:
        assert record["cohort"] == [0, 1, 2]
        assert record["missing"] == {"3": "late: 34 s, the deadline was 20 s"}
    assert [record["clock"] for record in outcome.metrics] == [20.0, 40.0, 60.0, 80.0]
    assert outcome.summary["late"] == 4
    assert outcome.summary["left_out"] == {}


def test_the_work_of_a_late_client_never_happened(tmp_path: Path) -> None:
    """State and memory are those of rounds that never asked it."""
    pace = PaceConfig(devices=devices(tmp_path, 0.1, 0.1, 0.1, 9.0), deadline=5.0)
    for method in ("ditto", "scaffold"):
        late = TinyRun(method, pace=pace).rounds(2)
        without = TinyRun(method, sampler=Given([0, 1, 2])).rounds(2)
        assert late.store.clients() == without.store.clients() == [0, 1, 2]
        assert equal_trees(late._state, without._state)
        assert all(equal_trees(late.store.get(client), without.store.get(client)) for client in range(3))


def test_the_first_of_those_asked_beyond_the_cohort_make_the_round(tmp_path: Path) -> None:
    trace = devices(tmp_path, 0.8, 0.1, 0.4, 0.2)
    outcome = run(tmp_path, f"pace.devices={trace}", "clients.count=2", "clients.over=0.5", "rounds=6")
    came = {0: 4.0, 1: 0.5, 2: 2.0, 3: 1.0}
    slowest: set[int] = set()
    for record in outcome.metrics:
        (left,) = map(int, record["missing"])
        slowest.add(left)
        assert len(record["cohort"]) == 2
        assert came[left] > max(came[client] for client in record["cohort"])
        assert record["missing"][str(left)].startswith(f"not waited for: {came[left]:g} s, enough came in ")
        assert record["bytes_down"] == 3 * record["bytes_up"] // 2, "three were asked, two were heard"
    assert slowest == {0, 2}, "of three the slowest: client 0, or 2 where 0 was not asked"
    total = sum(max(came[client] for client in record["cohort"]) for record in outcome.metrics)
    assert outcome.summary["clock"] == pytest.approx(total)
    assert outcome.summary["not_waited_for"] == 6


def test_who_is_not_there_is_not_asked(tmp_path: Path) -> None:
    """Client 0 is there at first, 2 and 3 later, nobody in between: then time passes, and the round is skipped."""
    path = tmp_path / "there.csv"
    path.write_text("client,from,until\n0,0,10\n2,40,400\n3,40,400\n")
    there = [f"pace.intervals={path}", "pace.presence=trace", "pace.step=2", "pace.wait=15", "clients.fraction=1"]
    outcome = run(tmp_path, *there, "rounds=6")
    assert [record["cohort"] for record in outcome.metrics] == [[0], [], [], [2, 3], [2, 3], [2, 3]]
    assert [record["clock"] for record in outcome.metrics] == [10.0, 25.0, 40.0, 50.0, 60.0, 70.0]
    assert outcome.metrics[1]["skipped"] == "0 of 4 clients are there, at least 1 are needed (clients.minimum)"
    assert outcome.summary["skipped_rounds"] == 2


PACED = ("pace.step=0.3", "pace.speed=lognormal", "pace.mbit=0.2", "pace.presence=chance", "pace.share=0.8")


@pytest.mark.parametrize(
    "sets",
    [
        ("algorithm.name=scaffold", "pace.deadline=3", "clients.count=3"),
        ("algorithm.name=fedbuff", "clients.count=3"),
        ("algorithm.name=fedbuff", "algorithm.concurrency=4", "algorithm.buffer=1", "pace.deadline=4"),
        ("algorithm.name=fedbuff", "clients.drop_rate=0.2", "executor=processes", "workers=2"),
    ],
)
def test_a_stopped_run_goes_on_to_the_bit(sets: tuple[str, ...], tmp_path: Path) -> None:
    sets = (*PACED, *sets, "rounds=5")
    whole = run(tmp_path / "whole", *sets)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", *sets, observers=[Stop(2)])
    (folder,) = (tmp_path / "parts").iterdir()
    with pytest.raises(KeyboardInterrupt):
        accord.resume(folder, observers=[Stop(4)])
    parts = accord.resume(folder)
    assert (parts.folder / "metrics.jsonl").read_bytes() == (whole.folder / "metrics.jsonl").read_bytes()
    kept = [load_file(o.folder / "checkpoint" / "round-000005" / "server.safetensors") for o in (whole, parts)]
    assert kept[0].keys() == kept[1].keys()
    assert all(np.array_equal(kept[0][name], kept[1][name]) for name in kept[0])
    clocks = [record["clock"] for record in whole.metrics]
    assert clocks == sorted(clocks)
    assert clocks[-1] > 0


def test_buffers_fill_while_slow_clients_are_at_work(tmp_path: Path) -> None:
    """One client takes 100 s: rounds of an exchange that waits take as long, buffers do not."""
    trace = devices(tmp_path, 0.1, 0.1, 0.2, 20.0)
    common = (f"pace.devices={trace}", "clients.fraction=1")
    waits = run(tmp_path / "waits", *common)
    buffered = run(tmp_path / "buffered", *common, "algorithm.name=fedbuff")
    assert waits.summary["clock"] == 400.0
    assert buffered.summary["clock"] < 10.0
    assert [len(record["cohort"]) for record in buffered.metrics] == [2, 2, 2, 2]


def test_a_round_nobody_can_answer_is_skipped(tmp_path: Path) -> None:
    trace = devices(tmp_path, 0.1, 9.0, 9.0, 9.0)
    sets = (f"pace.devices={trace}", "pace.deadline=5", "algorithm.name=fedbuff", "algorithm.buffer=2")
    outcome = run(tmp_path, *sets, "clients.minimum=2", "rounds=2")
    assert all(record["skipped"].startswith("1 answered and nobody else is at work") for record in outcome.metrics)
    assert outcome.metrics[0]["missing"]["3"] == "late: 45 s, the deadline was 5 s"


def test_other_traces_are_other_runs(tmp_path: Path) -> None:
    trace = devices(tmp_path, 0.1, 0.2, 0.4, 0.8)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "runs", f"pace.devices={trace}", observers=[Stop(2)])
    (folder,) = (tmp_path / "runs").iterdir()
    devices(tmp_path, 0.1, 0.2, 0.4, 0.9)
    with pytest.raises(CheckpointError, match="settings"):
        accord.resume(folder)
    assert "traces" in json.loads((folder / "identity.json").read_text())["settings"]


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["clients.over=0.3"], "without [pace] all of them come at the same time"),
        (["pace.step=1", "pace.deadline=4"], "can never be met: the fastest client trains for 5 s"),
        (["pace.intervals=x.csv"], "is not read with pace.presence = 'always'"),
        (["pace.presence=trace"], "needs pace.intervals"),
        (["pace.speed=normal"], "unknown distribution"),
    ],
)
def test_what_cannot_be_is_refused_before_the_start(sets: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        run(tmp_path, *sets)
    assert said in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the trace"):
        run(tmp_path, "pace.devices=nowhere.csv")


def test_tables_and_pictures_have_the_clock(tmp_path: Path) -> None:
    sets = [*FOUR, "rounds=2", "pace.step=0.1", "pace.speed=lognormal"]
    result = accord.compare(["fedavg", "fedbuff"], sets=[*sets, f"out={tmp_path}"], seeds=[0, 1])
    frame = result.frame()
    assert (frame["clock"] > 0).all()
    assert "clock" in result.frame("runs")
    assert "clock (s)" in result.table()
    figure = result.plot("accuracy")
    (axes,) = figure.axes
    assert axes.get_xlabel() == "seconds of the simulated clock"
    assert len(axes.lines) == 4
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["fedavg", "fedbuff"]
    drawn = {float(value) for line in axes.lines for value in line.get_xdata()}
    assert drawn == set(frame["clock"])
