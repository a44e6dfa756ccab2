"""Records nobody can have left, runs stopped at odd moments, folders that are none: each is said, nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import accord
from accord.engine.files import only_here
from accord.errors import ConfigError, DataError
from accord.observe import Observer
from accord.papers import reproduction, words
from accord.papers.desk import Here
from accord.papers.experiment import Place, Setting
from accord.papers.pages import write_pages
from accord.papers.records import Record, Records, read_record
from accord.papers.table import Table, order
from accord.papers.turns import FILE, shares
from accord.papers.wanted import for_machine, kept, missing, wanted
from papers.conftest import TINY, Write, table, tiny


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("seed", "a", "whole numbers"),
        ("seed", None, "whole numbers"),
        ("seed", True, "whole numbers"),
        ("seed", -1, "whole numbers"),
        ("seed", 3, "it has seed 3, its configuration 0"),
        ("rounds", 1 << 64, "whole numbers"),
        ("evaluations", {"round": 1}, "no list of objects"),
        ("evaluations", ["x"], "no list of objects"),
        ("evaluations", [{"accuracy": 0.5}], "whole numbers"),
        ("evaluations", [{"round": 2}, {"round": 1}], "do not rise"),
        ("evaluations", [{"round": 2}, {"round": 2}], "do not rise"),
        ("evaluations", [{"round": 1, "accuracy": 70}], "from 0 to 1"),
        ("evaluations", [{"round": 1, "accuracy": float("nan")}], "from 0 to 1"),
        ("evaluations", [{"round": 1, "accuracy": "0.7"}], "from 0 to 1"),
        ("evaluations", [], "evaluations are missing"),
        ("evaluations", [{"round": 1, "accuracy": -0.1}], "from 0 to 1"),
        ("seconds", "x", "its seconds"),
        ("seconds", float("nan"), "its seconds"),
        ("gpu_seconds", -1, "its seconds"),
        ("versions", "0.7", "its versions must be an object"),
        ("hardware", "a GPU", "its hardware must be an object"),
        ("config", None, "its config must be an object"),
        ("summary", [], "its summary must be an object"),
    ],
)
def test_what_is_no_record_is_refused_by_name(write: Write, field: str, value: object, said: str) -> None:
    path = write("fedavg", [0.5])
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(DataError, match=f"fedavg-seed0.json is no record of a run: .*{said}.*; move it out") as error:
        read_record(path)
    assert str(path) in str(error.value)


def test_numbers_beyond_any_are_refused_by_name(write: Write) -> None:
    path = write("fedavg", [0.5])
    path.write_text(path.read_text().replace("0.5", "1" + "0" * 400))
    with pytest.raises(DataError, match=r"fedavg-seed0\.json cannot be read as a record"):
        read_record(path)


@pytest.mark.parametrize("text", ["[]", '"rounds seed seconds evaluations"', "[" * 100_000, "7", "{", ""])
def test_what_is_no_object_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"odd\.json"):
        read_record(path)


def test_whole_and_broken_records_are_read(write: Write) -> None:
    assert read_record(write("fedavg", [0.0, 1.0])).rounds_done == 20
    assert read_record(write("fedavg", [], broke_off="training diverged in round 1 on client 0")).rounds_done == 0


@pytest.mark.parametrize(
    ("rounds_of_the_run", "finished", "broke_off", "whole"),
    [(40, True, "", True), (40, False, "", False), (40, False, "diverged in round 41", True), (80, False, "", True)],
)
def test_a_run_is_done_when_it_was_judged_at_its_end(
    write: Write, rounds_of_the_run: int, finished: bool, broke_off: str, whole: bool
) -> None:
    path = write("fedavg", [0.1, 0.2, 0.3, 0.4], rounds=rounds_of_the_run, finished=finished, broke_off=broke_off)
    record = read_record(path)
    assert record.complete(40) is whole
    assert record.complete(30), "a run that went further is whole at an earlier round"
    assert not record.complete(50)
    left = missing(wanted(tiny(40), (0,), "full", ["fedavg"]), Records.of([path.parent]))
    assert bool(left) is not whole


class _StopAfterTheLastRound(Observer):
    def round_ended(self, round: int, record: Mapping[str, Any]) -> None:
        if round == TINY["rounds"]:
            raise KeyboardInterrupt


def test_what_is_measured_at_the_end_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction, "Desk", lambda runs, jobs, done, say: Here(runs, done))
    where: dict[str, Any] = {"runs": tmp_path / "runs", "results": tmp_path / "results", "device": "cpu"}
    one = next(o for o in wanted(tiny(), (0,), "full", ["fedavg"], for_machine("cpu", one_core=False)))
    with pytest.raises(KeyboardInterrupt):
        accord.run(one.entry(tmp_path / "runs" / "full").config, observers=[_StopAfterTheLastRound()])
    keeper = reproduction._Keeper(tmp_path / "runs" / "full", tmp_path / "results", {}, {})
    keeper(one, "", "")
    path = tmp_path / "results" / "tiny" / "fedavg-seed0.json"
    assert (read_record(path).rounds_done, read_record(path).finished) == (4, False)
    shown = accord.reproduce(tiny(), rows=["fedavg"], only_show=True, say=str, **where)
    assert shown.missing == ["fedavg in digits, seed 0"]
    again = accord.reproduce(tiny(), rows=["fedavg"], say=str, **where)
    assert again.missing == []
    assert read_record(path).finished


def test_what_was_measured_after_more_rounds_is_another_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer's epochs after four rounds say nothing of those after two; both are kept, whichever came first."""
    monkeypatch.setattr(reproduction, "Desk", lambda runs, jobs, done, say: Here(runs, done))
    digits = tiny()
    change = {"evaluate": {"unseen_epochs": 1}, "partition": {"clients": 4, "unseen": 1}}
    place = replace(digits.places[0], change=change)
    asking = replace(digits, columns=[replace(column, place=place) for column in digits.columns])
    for scales in (("full", "short"), ("short", "full")):
        results = tmp_path / scales[0]
        where: dict[str, Any] = {"runs": results / "runs", "results": results / "records", "device": "cpu", "say": str}
        for scale in scales:
            found = accord.reproduce(asking, rows=["fedavg"], scale=scale, **where)
            assert found.missing == []
        assert sorted(read_record(path).rounds_done for path in (results / "records").rglob("*.json")) == [2, 4]
        for scale in scales:
            assert accord.reproduce(asking, rows=["fedavg"], scale=scale, only_show=True, **where).missing == []


def test_means_over_evaluations_are_over_the_same_rounds(tmp_path: Path, write: Write) -> None:
    one = tiny(40)
    place = Place("digits", Setting("digits", "Digits", {**TINY, "rounds": 40, "evaluate": {"every": 20}}, short=2))
    one = replace(one, columns=[replace(column, place=place) for column in one.columns])
    write("fedavg", [0.1, 0.2, 0.9, 0.4])  # evaluated at 10, 20, 30, 40: the last two of every 20 are 20 and 40
    made = Table.of(one, Records.of([tmp_path / "results"]), (0,))
    assert made.cells["fedavg", "last"].ours.mean == pytest.approx(30)  # type: ignore[union-attr]
    record = Record(tmp_path, {"evaluations": [{"round": r} for r in (10, 20, 30, 35)]})
    assert [one["round"] for one in record.every(20).fields["evaluations"]] == [20, 35], "the last one counts"
    assert record.every(5) is record
    assert (record.step, Record(tmp_path, {"evaluations": [{"round": 3}]}).step) == (10, 0)


def test_runs_looked_at_less_often_are_named(tmp_path: Path, write: Write) -> None:
    write("fedavg", [0.1, 0.2, 0.9, 0.4])
    evaluations = [{"round": round, "accuracy": 0.5} for round in range(1, 41)]
    write("scaffold", [0.5], evaluations=evaluations, rounds_done=40)
    assert "digits, looked at every 10 rounds, the others every 1: FEDAVG" in words.gaps(table(tmp_path))


def test_a_record_of_another_version_is_named_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction, "Desk", lambda runs, jobs, done, say: Here(runs, done))
    where: dict[str, Any] = {"runs": tmp_path / "runs", "results": tmp_path / "results", "device": "cpu", "say": str}
    accord.reproduce(tiny(), rows=["fedavg"], **where)
    path = tmp_path / "results" / "tiny" / "fedavg-seed0.json"
    fields = json.loads(path.read_text())
    fields["config"]["algorithm"]["momentum_of_old"] = 1
    old = json.dumps(fields)
    path.write_text(old)
    shown = accord.reproduce(tiny(), rows=["fedavg"], only_show=True, **where)
    assert f"left out: {path}, which this version cannot read" in shown.text
    assert "momentum_of_old" in shown.text
    again = accord.reproduce(tiny(), rows=["fedavg", "fedprox"], **where)
    assert again.missing == []
    assert again.unreadable == {}
    assert path.with_suffix(".unread").read_text() == old


def test_a_record_of_another_question_is_kept_beside_the_new_one(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduction, "Desk", lambda runs, jobs, done, say: Here(runs, done))
    path = write("fedavg", [0.1, 0.2, 0.3, 0.4])
    fields = json.loads(path.read_text())
    fields["config"]["local"] = {**fields["config"]["local"], "lr": 0.5}  # what the experiment asked for once
    old = json.dumps(fields)
    path.write_text(old)
    where: dict[str, Any] = {"runs": tmp_path / "runs", "results": tmp_path / "results", "device": "cpu", "say": str}
    assert accord.reproduce(tiny(), rows=["fedavg"], **where).missing == []
    assert json.loads(path.read_text())["rounds"] == 4
    assert path.with_suffix(".repeat.json").read_text() == old


DIVERGED = "training diverged in round 3 on client 1: mean loss nan"


def seen(path: Path, accuracies: list[float], broke_off: str = "", rounds: int = 9) -> Record:
    evaluations = [{"round": round, "accuracy": value} for round, value in enumerate(accuracies, 1)]
    return Record(path, {"rounds": rounds, "evaluations": evaluations, "broke_off": broke_off})


@pytest.mark.parametrize(
    ("known", "new", "kept", "aside"),
    [
        (([0.1, 0.2], ""), ([0.1, 0.2, 0.3], ""), 3, None),
        (([0.1, 0.2, 0.3], ""), ([0.1, 0.2], ""), 3, None),
        (([0.1, 0.2], ""), ([0.1, 0.2, 0.3], DIVERGED), 3, None),  # the same run went on
        (([0.1, 0.2, 0.3], DIVERGED), ([0.1, 0.2, 0.3], DIVERGED), 3, None),
        (([0.1, 0.2, 0.3], ""), ([0.1, 0.25], DIVERGED), 3, 2),
        (([0.1, 0.25], DIVERGED), ([0.1, 0.2, 0.3], ""), 3, 2),
        (([0.1], ""), ([], DIVERGED), 1, 0),
        (([], DIVERGED), ([], DIVERGED), 0, None),
        (None, ([0.1], DIVERGED), 1, None),
    ],
)
def test_a_run_that_diverged_is_kept_beside_an_equal_one_that_did_not(
    known: tuple[list[float], str] | None, new: tuple[list[float], str], kept: int, aside: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "fedavg-seed0.json"
    before = None if known is None else seen(path, *known)
    if before is not None:
        path.write_text(json.dumps(before.fields))
    keeper = reproduction._Keeper(tmp_path, tmp_path, {}, {})
    keeper._keep(seen(path, *new), before)
    assert len(json.loads(path.read_text())["evaluations"]) == kept
    beside = path.with_suffix(".repeat.json")
    assert beside.exists() == (aside is not None)
    if aside is not None:
        fields = json.loads(beside.read_text())
        assert (len(fields["evaluations"]), fields["broke_off"]) == (aside, DIVERGED)
    keeper._keep(seen(path, [0.3], DIVERGED), Record(path, json.loads(path.read_text())))
    second = path.with_suffix(".repeat1.json") if aside is not None else beside
    assert second.exists() == (kept > 0)  # with nothing evaluated and the same end they are one


def test_a_queue_that_comes_to_nothing_is_refused() -> None:
    one = tiny()
    elsewhere = Place("elsewhere", Setting("elsewhere", "Elsewhere", TINY, short=2))
    rows = [replace(row, only=("digits",)) for row in one.rows]
    one = replace(one, rows=rows, columns=[one.columns[0], replace(one.columns[1], place=elsewhere)])
    with pytest.raises(ConfigError, match="tiny: no row of fedavg is part of elsewhere"):
        wanted(one, (0,), "full", ["fedavg"], (), ["elsewhere"])
    assert [run.place.name for run in wanted(one, (0,), "full", ["fedavg"])] == ["digits"]


def test_a_smoke_test_shows_the_place_it_was_asked_for(tmp_path: Path) -> None:
    one = tiny()
    elsewhere = Place("elsewhere", Setting("elsewhere", "Elsewhere", TINY, short=2))
    one = replace(one, columns=[one.columns[0], replace(one.columns[1], place=elsewhere, group="Elsewhere")])
    found = accord.reproduce(one, rows=["fedavg"], places=["elsewhere"], scale="smoke", runs=tmp_path, say=str)
    assert [column.place.name for column in found.table.columns] == ["elsewhere"]
    assert len(found.table.cells["fedavg", "to50"].records) == 1


@pytest.mark.parametrize("which", ["runs", "results"])
def test_a_folder_that_is_none_is_refused_before_any_work(tmp_path: Path, which: str) -> None:
    (tmp_path / "file").write_text("")
    where = {"runs": tmp_path / "runs", "results": tmp_path / "results", which: tmp_path / "file"}
    with pytest.raises(ConfigError, match=rf"--{which} .*file.*: cannot be written into"):
        accord.reproduce(tiny(), say=str, device="cpu", **where)
    assert not list(tmp_path.rglob("metrics.jsonl"))


def test_pages_of_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: there are no records in it"):
        write_pages(tmp_path / "nowhere", tmp_path / "docs")
    assert not (tmp_path / "docs").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"minutes": "3"}, "minutes: must be a number above 0, not '3'"),
        ({"minutes": float("nan")}, "minutes: must be a number above 0"),
        ({"note": "two\nlines"}, "note: must be one line"),
        ({"note": "\udcff"}, "note: must be one line"),
    ],
)
def test_odd_arguments_are_refused(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        accord.reproduce(tiny(), runs=tmp_path, results=tmp_path, say=str, **given)


def test_hardly_any_end_of_time_is_no_error(tmp_path: Path) -> None:
    where: dict[str, Any] = {"runs": tmp_path / "runs", "results": tmp_path / "results", "device": "cpu"}
    assert accord.reproduce(tiny(), rows=["fedavg"], minutes=1e9, say=str, **where).missing == []


def test_a_run_at_work_elsewhere_has_not_failed(tmp_path: Path) -> None:
    where: dict[str, Any] = {"runs": tmp_path / "runs", "results": tmp_path / "results", "device": "cpu"}
    said: list[str] = []
    one = next(o for o in wanted(tiny(), (0,), "full", ["fedavg"], for_machine("cpu", one_core=False)))
    folder = one.entry(tmp_path / "runs" / "full").folder
    with pytest.raises(KeyboardInterrupt):
        accord.run(one.entry(tmp_path / "runs" / "full").config, observers=[_StopAfterTheLastRound()])
    with only_here(folder):
        found = accord.reproduce(tiny(), rows=["fedavg"], say=said.append, **where)
    assert found.failed == {}
    assert found.missing == ["fedavg in digits, seed 0"]
    assert said[-1].endswith("at work in another process: fedavg in digits, seed 0")
    assert not list((tmp_path / "results").rglob("*.json"))


def test_a_run_that_goes_on_says_with_what_it_was_begun(tmp_path: Path) -> None:
    where: dict[str, Any] = {"runs": tmp_path / "runs", "results": tmp_path / "results", "device": "cpu"}
    one = next(o for o in wanted(tiny(), (0,), "full", ["fedavg"], for_machine("cpu", one_core=False)))
    entry = one.entry(tmp_path / "runs" / "full")
    assert kept(entry) == [], "it has not begun"
    with pytest.raises(KeyboardInterrupt):
        accord.run(entry.config, observers=[_StopAfterTheLastRound()])
    assert kept(entry) == []
    config = entry.folder / "config.toml"
    whole = config.read_text()
    config.write_text("rounds = [")
    assert kept(entry) == [], "the run will say so"
    config.write_text(whole)
    said: list[str] = []
    found = accord.reproduce(tiny(), rows=["fedavg"], sets=["checkpoint.keep=7"], say=said.append, **where)
    assert found.missing == []
    assert said[1].endswith("goes on: fedavg in digits, seed 0 (with checkpoint.keep=1, as it was begun)")


def test_what_a_killed_desk_had_under_way_ends_with_its_last_line(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    lines = [
        (0, "x", True, gone.pid),
        (4, "y", True, gone.pid),
        (36_000, "x", True, os.getpid()),
        (36_010, "x", False, os.getpid()),
        (36_010, "z", True, os.getpid()),
        (36_016, "z", False, os.getpid()),
    ]
    text = [json.dumps({"at": at, "run": run, "began": began, "desk": desk}) for at, run, began, desk in lines]
    (tmp_path / FILE).write_text("\n".join(text) + "\n")
    assert shares(tmp_path) == {"x": 14, "z": 6}


def test_one_desk_does_not_end_what_another_has_under_way(tmp_path: Path) -> None:
    # Two processes live on while this is read: this one, and the one that started it.
    lines = [(0, "x", True, 0), (10, "x", True, 1), (10, "x", False, 1), (20, "x", False, 0)]
    desks = os.getpid(), os.getppid()
    text = [json.dumps({"at": at, "run": run, "began": began, "desk": desks[n]}) for at, run, began, n in lines]
    (tmp_path / FILE).write_text("\n".join(text) + "\n")
    assert shares(tmp_path) == {"x": 20}


def test_the_best_is_one_that_was_compared() -> None:
    printed = {"own": 3.0, "base": 1.0, "other": 2.0}
    apart = order(10, printed, {"own": {1: 9.0}, "base": {0: 1.0}, "other": {0: 2.0}}, "own", "base")
    assert (apart.pairs, apart.best_printed, apart.best_ours) == (1, False, False), "nothing to compare it with"
    level = order(10, printed, {"own": {0: 2.0}, "base": {0: 1.0}, "other": {0: 2.0}}, "own", "base")
    assert (level.best_printed, level.best_ours) == (True, None)
    ahead = order(10, printed, {"own": {0: 2.5}, "base": {0: 1.0}, "other": {0: 2.0}}, "own", "base")
    assert (ahead.best_printed, ahead.best_ours) == (True, True)
    behind = order(10, printed, {"own": {0: 2.5}, "base": {0: 2.5}, "other": {0: 2.6}}, "own", "base")
    assert (behind.best_printed, behind.best_ours) == (True, False)


def test_a_shared_lead_is_said(tmp_path: Path, write: Write) -> None:
    for row in ("fedavg", "scaffold"):
        write(row, [0.5, 0.5, 0.5, 0.5])
    assert "SCAFFOLD is the best in the paper, here level with others;" in words.orders(table(tmp_path))[0]
