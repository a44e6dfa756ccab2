"""Runs that are missing are carried out, in the right order, and go on after a stop."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import accord
from accord.config import RunConfig
from accord.errors import ConfigError
from accord.observe import Observer
from accord.papers import desk, reproduction, shelf, supplies
from accord.papers.asked import Asked, asked
from accord.papers.desk import Desk, Here
from accord.papers.experiment import Experiment
from accord.papers.printed import NOTHING
from accord.papers.turns import shares
from accord.papers.wanted import Wanted, for_machine, wanted
from accord.study.pool import side_by_side
from papers.conftest import tiny

CPU = ["device=cpu", "executor=sequential"]


def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of any scale in this process, which is quicker."""
    monkeypatch.setattr(reproduction, "Desk", lambda runs, jobs, done, say: Here(runs, done))


def records(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.name: json.loads(path.read_text()) for path in sorted(folder.rglob("*.json"))}


def test_the_most_informative_runs_come_first() -> None:
    labels = [one.label for one in wanted(tiny(), (0, 1), "full")]
    assert labels == [
        f"{row} in digits, seed {seed}" for seed in (0, 1) for row in ("scaffold", "fedavg", "fedprox")
    ]  # the paper's own, what it is compared with, the others; `later` cannot be run yet


def test_experiments_share_the_folder_of_a_run() -> None:
    def folder(id: str, row: str) -> Path:
        runs = wanted(shelf.experiment(id), (0,), "full", [row])
        return next(one for one in runs if one.place.name == "ufo-cifar10").entry(Path("runs")).folder

    assert folder("ufo-t1", "fedavg") == folder("ufo-t3", "cls")


def test_a_federation_can_be_run_alone() -> None:
    experiment = shelf.experiment("br-t1")
    labels = [one.label for one in wanted(experiment, (0,), "full", ["fedavg", "fedbr"], (), ["br-cifar10"])]
    assert labels == ["fedbr in br-cifar10, seed 0", "fedavg in br-cifar10, seed 0"]
    with pytest.raises(ConfigError, match=r"br-t1 has no place 'cifar'.*Allowed: br-mnist, br-cifar10, br-cifar100"):
        wanted(experiment, (0,), "full", [], (), ["cifar"])


def test_what_is_missing_is_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_process(monkeypatch)
    where: dict[str, Any] = {"runs": tmp_path / "runs", "results": tmp_path / "results", "device": "cpu"}
    said: list[str] = []
    first = accord.reproduce(tiny(), rows=["fedavg"], say=said.append, **where)
    assert first.missing == []
    assert said == ["1 runs, 0 of them done before"]
    known = records(tmp_path / "results")
    assert list(known) == ["fedavg-seed0.json"]
    record = known["fedavg-seed0.json"]
    assert record["finished"]
    assert record["rounds_done"] == 4
    assert record["config"]["algorithm"]["name"] == "fedavg"
    assert record["versions"]["accord"] == accord.__version__
    assert [one["round"] for one in record["evaluations"]] == [1, 2, 3, 4]
    assert len(record["evaluations"][-1]["clients"]["deciles"]) == 9
    sent = [one["bytes"] for one in record["evaluations"]]
    assert sent == [sent[0] * n for n in (1, 2, 3, 4)]
    said.clear()
    accord.reproduce(tiny(), say=said.append, **where)
    assert said == ["3 runs, 1 of them done before"]
    said.clear()
    again = accord.reproduce(tiny(), say=said.append, **where)
    assert said == []
    assert "Table 0" in again.text
    assert "cannot be run yet: a part" in again.text


def test_several_experiments_are_one_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_process(monkeypatch)
    begun: list[str] = []
    carry_out = desk.carry_out
    monkeypatch.setattr(desk, "carry_out", lambda entry: (begun.append(entry.config.algorithm.name), carry_out(entry)))
    other = replace(tiny(), id="other", own="fedprox")
    parts = [Asked(tiny(), ["fedavg"]), Asked(other, ["fedavg", "fedprox"])]
    said: list[str] = []
    where: dict[str, Any] = {"runs": tmp_path / "runs", "results": tmp_path / "results", "device": "cpu"}
    first, second = reproduction.reproduce_all(parts, say=said.append, **where)
    assert said == ["2 runs, 0 of them done before"], "what both ask for is one run"
    assert begun == ["fedavg", "fedprox"], "in the order of the experiments, whose own order is by importance"
    assert [first.table.experiment.id, second.table.experiment.id] == ["tiny", "other"]
    assert first.missing == second.missing == []
    assert [len(first.folders), len(second.folders)] == [1, 2]
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("results/*/*")) == [
        "results/other/fedprox-seed0.json",
        "results/tiny/fedavg-seed0.json",
    ]


def test_a_run_that_fails_is_named_in_the_experiments_that_ask_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_process(monkeypatch)
    one = next(iter(wanted(tiny(), (0,), "full", ["fedprox"], for_machine("cpu", one_core=False))))
    blocked = one.entry(tmp_path / "runs" / "full").folder
    blocked.mkdir(parents=True)
    (blocked / "something").write_text("else")
    parts = [Asked(tiny(), ["fedavg"]), Asked(replace(tiny(), id="other"), ["fedprox"])]
    where: dict[str, Any] = {"runs": tmp_path / "runs", "results": tmp_path / "results", "device": "cpu"}
    first, second = reproduction.reproduce_all(parts, say=str, **where)
    assert first.failed == {}
    assert list(second.failed) == second.missing == ["fedprox in digits, seed 0"]


@pytest.mark.parametrize(
    ("text", "rows", "places"),
    [
        ("cross", [], []),
        ("cross:own", ["own"], []),
        (" cross : own , fedavg @ mmd, br ", ["own", "fedavg"], ["mmd", "br"]),
        ("cross@mmd", [], ["mmd"]),
    ],
)
def test_parts_of_an_experiment_by_name(text: str, rows: list[str], places: list[str]) -> None:
    part = Asked.read(text)
    assert (part.experiment.id, part.rows, part.places) == ("cross", rows, places)
    labels = {one.label for one in part.runs((0,), "full", ())}
    chosen = [row.name for row in part.experiment.rows if not rows or row.name in rows]
    where = places or ["ufo", "br", "mmd", "fus", "rane"]
    assert labels == {f"{row} in {place}, seed 0" for row in chosen for place in where}


@pytest.mark.parametrize("text", ["cross:", "cross@", "cross:own@", "cross: , @mmd"])
def test_a_part_without_names_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="name at least one row behind ':' and one place behind '@'"):
        Asked.read(text)


def test_options_for_rows_go_with_one_experiment() -> None:
    (one,) = asked(["cross"], ["own"], ["mmd"])
    assert (one.rows, one.places) == (["own"], ["mmd"])
    assert [one.experiment.id for one in asked(["cross", "ufo-t1"])] == ["cross", "ufo-t1"]
    for texts in (["cross", "ufo-t1"], ["cross:own"], ["cross@mmd"]):
        for options in ((["fedavg"], ()), ((), ["mmd"])):
            with pytest.raises(ConfigError, match="--rows and --places go with one experiment"):
                asked(texts, *options)


class _StopIn(Observer):
    def __init__(self, round: int) -> None:
        self._round = round

    def round_ended(self, round: int, record: Any) -> None:
        if round == self._round:
            raise KeyboardInterrupt


def test_a_stopped_run_goes_on_to_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_process(monkeypatch)
    whole: dict[str, Any] = {"runs": tmp_path / "a", "results": tmp_path / "b", "device": "cpu"}
    accord.reproduce(tiny(), rows=["fedavg"], say=str, **whole)
    one = next(o for o in wanted(tiny(), (0,), "full", ["fedavg"], for_machine("cpu", one_core=False)))
    begun = one.entry(tmp_path / "c" / "full").config
    config = replace(begun, checkpoint=replace(begun.checkpoint, every=1))
    with pytest.raises(KeyboardInterrupt):
        accord.run(config, observers=[_StopIn(2)])
    result = accord.reproduce(
        tiny(), rows=["fedavg"], say=str, runs=tmp_path / "c", results=tmp_path / "d", device="cpu"
    )
    assert result.missing == []
    curves = [
        [evaluation["accuracy"] for evaluation in records(tmp_path / name)["fedavg-seed0.json"]["evaluations"]]
        for name in ("b", "d")
    ]
    assert curves[0] == curves[1]


def test_in_time_means_that_what_is_left_is_named(tmp_path: Path) -> None:
    experiment = shelf.experiment("ufo-f4")
    result = accord.reproduce(experiment, scale="smoke", minutes=1e-9, runs=tmp_path, say=str)
    rows = ["lambda3", "cls", "lambda1", "lambda2", "lambda5", *(f"lambda{n}-dynamic" for n in (1, 2, 3, 5))]
    assert result.missing == [f"{row} in mnist, seed 0" for row in rows]
    assert "Still to run (9): lambda3" in result.text


@pytest.mark.parametrize(("every", "evaluated"), [(1, 1), (3, 0)])
def test_a_diverged_run_is_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int, evaluated: int
) -> None:
    in_process(monkeypatch)
    one = tiny(3)
    settings = {"algorithm": {"name": "fedavg"}, "local": {"lr": 1e30}, "evaluate": {"every": every}}
    wild = replace(one.row("fedavg"), config=settings)
    experiment: Experiment = replace(one, rows=[wild, *one.rows[1:]])
    where: dict[str, Any] = {"runs": tmp_path / "runs", "results": tmp_path / "results", "device": "cpu"}
    result = accord.reproduce(experiment, rows=["fedavg"], say=str, **where)
    assert result.missing == []
    assert result.failed == {}
    assert f"1 diverged [{evaluated}]" in result.text
    (record,) = records(tmp_path / "results").values()
    assert len(record["evaluations"]) == evaluated
    assert record["broke_off"].startswith("training diverged in round 2 on client")
    said: list[str] = []
    accord.reproduce(experiment, rows=["fedavg"], say=said.append, **where)
    assert said == [], "it is not run again"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rows": ["fedsgd"]}, "has no row 'fedsgd'"),
        ({"scale": "huge"}, "scale 'huge' is unknown"),
        ({"device": "tpu"}, "device 'tpu' is unknown"),
        ({"jobs": 0}, "jobs: must be at least 1"),
        ({"minutes": 0}, "minutes: must be a number above 0"),
        ({"seeds": []}, "seeds: name at least one"),
        ({"sets": ["local.lr=1"]}, "local.lr belongs to the experiment"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        accord.reproduce(tiny(), runs=tmp_path / "runs", results=tmp_path, **given)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("on_gpu", [False, True], ids=["fork", "forkserver"])
def test_runs_in_processes_of_their_own(tmp_path: Path, on_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if on_gpu:  # processes are started as beside a GPU
        monkeypatch.setattr(desk, "side_by_side", lambda *a, on_gpu, until: side_by_side(*a, on_gpu=True, until=until))
    one = tiny(2)
    wild = replace(one.row("fedprox"), config={"algorithm": {"name": "fedprox"}, "local": {"lr": 1e30}})
    experiment = replace(one, rows=[wild if row.name == "fedprox" else row for row in one.rows])
    said: list[str] = []
    where: dict[str, Any] = {"runs": tmp_path / "runs", "results": tmp_path / "results", "device": "cpu"}
    result = accord.reproduce(experiment, jobs=2, say=said.append, **where)
    assert result.failed == {}
    assert result.missing == []
    news = [line.split("  ")[-1] for line in said[1:]]
    assert news[:2] == ["started: scaffold in digits, seed 0", "started: fedavg in digits, seed 0"]
    assert sorted(news[2:]) == [
        "diverged: fedprox in digits, seed 0",
        "ended: fedavg in digits, seed 0",
        "ended: scaffold in digits, seed 0",
        "started: fedprox in digits, seed 0",
    ]
    assert len(records(tmp_path / "results")) == 3
    runs = tmp_path / "runs" / "full"
    assert shares(runs).keys() == {path.stem for path in runs.rglob("*.log")}
    assert "training diverged" in next(runs.rglob("fedprox*.log")).read_text()


def test_minutes_are_kept_and_the_next_call_goes_on(tmp_path: Path) -> None:
    where: dict[str, Any] = {"runs": tmp_path / "runs", "results": tmp_path / "results", "device": "cpu"}

    def rounds_after(minutes: float) -> int:
        begin = time.monotonic()
        result = accord.reproduce(
            tiny(100_000), rows=["fedavg"], minutes=minutes, sets=["checkpoint.every=1"], say=str, **where
        )
        assert time.monotonic() - begin < 60 * minutes + 5
        assert result.missing == ["fedavg in digits, seed 0"]  # it left long before the end, and says so
        known = records(tmp_path / "results")
        return int(known["fedavg-seed0.json"]["rounds_done"]) if known else 0

    # How long a process takes to start and train a round is the machine's business.
    minutes, first = next((m, done) for m in (0.03, 0.2, 1, 2) if (done := rounds_after(m)))
    assert rounds_after(minutes) > first


def test_what_a_run_has_come_to_is_noted_while_it_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may be gone before any run ends: then this is all that is left of it."""
    monkeypatch.setattr(Desk, "pause", 0.05)
    keeper = reproduction._Keeper(tmp_path / "runs", tmp_path / "results", {"gpu": "a GPU"}, {})
    seen: list[Any] = []

    def done(run: Wanted, diverged: str, failed: str) -> None:
        keeper(run, diverged, failed)
        seen.extend(records(tmp_path / "results").values())

    one = next(iter(wanted(tiny(300), (0,), "full", ["fedavg"], CPU)))
    Desk(tmp_path / "runs", 1, done, seen.append).work([one], time.monotonic() + 240)
    early, last = seen[seen.index("started: fedavg in digits, seed 0") + 1 : -1], seen[-2]
    assert seen[-1] == "ended: fedavg in digits, seed 0"
    assert (last["rounds_done"], last["finished"]) == (300, True)
    assert 0 < early[0]["rounds_done"] < 300
    assert not early[0]["finished"]
    assert 0 < early[0]["gpu_seconds"] <= last["gpu_seconds"]


def test_a_run_that_breaks_is_named_with_its_last_words(tmp_path: Path) -> None:
    ended: list[tuple[str, str]] = []
    one = next(iter(wanted(tiny(), (0,), "full", ["fedavg"], CPU)))
    blocked = one.entry(tmp_path).folder
    blocked.mkdir(parents=True)
    (blocked / "something").write_text("else")
    worker = Desk(tmp_path, 1, lambda run, diverged, failed: ended.append((diverged, failed)), str)
    worker.work([one], time.monotonic() + 60)
    log = blocked.with_name(f"{blocked.name}.log")
    ((diverged, failed),) = ended
    assert not diverged
    assert "exists already" in failed
    assert failed.endswith(f"; see {log}")
    assert "Traceback" in log.read_text()


def test_data_that_are_not_there_are_said_once_and_the_other_runs_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two federations: of embedded digits, and of a data set whose files nobody has."""
    in_process(monkeypatch)
    digits = tiny()
    (place,) = digits.places
    far = replace(place.setting, name="far", config={**place.setting.config, "data": {"name": "mnist", "dir": "none"}})
    column = replace(digits.columns[0], key="far", place=replace(place, name="far", setting=far))
    rows = [replace(row, printed={**row.printed, "far": NOTHING}) for row in digits.rows[:2]]
    experiment = replace(digits, columns=[*digits.columns, column], rows=rows, own="fedprox")
    asked_for: list[str] = []
    load = supplies.load_data

    def loaded(config: RunConfig) -> object:
        asked_for.append(config.data.name)
        return load(replace(config, data=replace(config.data, download=False)))

    monkeypatch.setattr(supplies, "load_data", loaded)
    said: list[str] = []
    found = accord.reproduce(
        experiment, device="cpu", runs=tmp_path / "runs", results=tmp_path / "results", say=said.append
    )
    assert asked_for == ["mnist5k", "mnist"]
    assert "4 runs, 0 of them done before" in said
    assert "2 of them left out, their data are not to be had: see below the table" in said
    assert len(records(tmp_path / "results")) == 2
    assert list(found.failed) == ["fedprox in far, seed 0", "fedavg in far, seed 0"]
    assert not (tmp_path / "runs" / "full" / "far").exists()
    assert found.text.count("mnist: its files are not on this machine") == 1
    assert "failed: fedprox in far, seed 0; fedavg in far, seed 0: mnist: its files" in found.text


def test_a_public_data_set_that_is_not_there_is_said_once_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's, of two rows; the third needs none."""
    in_process(monkeypatch)
    digits = tiny()
    asked_for: list[str] = []
    load = supplies.load_public

    def loaded(config: RunConfig, name: str) -> object:
        asked_for.append(name)
        return load(replace(config, data=replace(config.data, download=False, dir="none")), name)

    monkeypatch.setattr(supplies, "load_public", loaded)
    plain = next(row for row in digits.rows if row.name == "fedavg")
    public = [
        replace(plain, name=f"fedbr{mixed}", config={"algorithm": {"name": "fedbr", "public": "mnist", "mixed": mixed}})
        for mixed in (1, 2)
    ]
    experiment = replace(digits, rows=[plain, *public], own="fedbr1", baseline="fedavg")
    found = accord.reproduce(
        experiment, device="cpu", runs=tmp_path / "runs", results=tmp_path / "results", say=lambda text: None
    )
    assert asked_for == ["mnist"]
    assert len(records(tmp_path / "results")) == 1
    assert list(found.failed) == ["fedbr1 in digits, seed 0", "fedbr2 in digits, seed 0"]
    assert found.text.count("mnist: its files are not on this machine") == 1


@pytest.mark.parametrize(
    ("prints", "code", "said"),
    [
        ("", 0, "MPS started"),
        ("An instance of this daemon is already running", 1, "MPS is at work already"),
        ("Cannot find CUDA driver", 1, "no MPS: Cannot find CUDA driver"),
    ],
)
def test_what_became_of_sharing_is_said(
    prints: str, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = tmp_path / "control"
    control.write_text(f"#!/bin/sh\necho '{prints}'\nexit {code}\n")
    control.chmod(0o755)
    monkeypatch.setattr(desk.shutil, "which", lambda name: str(control))
    assert desk.start_sharing() == said
