"""accord.compare: its numbers, by hand from the runs' own files; own data; what goes on after a failure or a stop."""

from __future__ import annotations

import builtins
import json
import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import accord
from accord.config import RunConfig, load_config
from accord.errors import ConfigError, DataError, RunError
from accord.study.inputs import Inputs
from accord.study.plan import Comparison
from accord.study.results import ComparisonResult
from accord.study.work import carry_out
from support.study import SETS, Breaker, Notes, hospitals, network


def summary(result: ComparisonResult, run: str) -> Any:
    return json.loads((result.folder / run / "summary.json").read_text())


def test_rows_are_mean_and_sample_deviation_of_the_summaries(asked: dict[str, Any]) -> None:
    result = accord.compare(["fedavg", "scaffold"], seeds=(0, 1, 4), **asked)
    assert [row.algorithm for row in result.rows] == ["fedavg", "scaffold"]
    for row in result.rows:
        assert row.seeds == (0, 1, 4)
        a, b, c = (summary(result, f"{row.algorithm}-{seed}")["accuracy"] for seed in (0, 1, 4))
        mean = (a + b + c) / 3
        deviation = math.sqrt(((a - mean) ** 2 + (b - mean) ** 2 + (c - mean) ** 2) / 2)
        assert row.cells["accuracy"].mean == pytest.approx(mean)
        assert row.cells["accuracy"].std == pytest.approx(deviation)
        assert f"{100 * mean:.2f} ± {100 * deviation:.2f}" in result.table()
    assert len({summary(result, f"fedavg-{seed}")["accuracy"] for seed in (0, 1, 4)}) > 1, "seeds that differ"
    assert result.failed == {}
    assert (result.folder / "table.md").read_text() == result.table()
    written = json.loads((result.folder / "compare.json").read_text())
    assert written["rows"][0]["accuracy"]["mean"] == result.rows[0].cells["accuracy"].mean
    assert [run["folder"] for run in written["runs"]] == [f"{a}-{s}" for a in ("fedavg", "scaffold") for s in (0, 1, 4)]


def test_curves_are_mean_and_sample_deviation_of_the_rounds(asked: dict[str, Any], tmp_path: Path) -> None:
    result = accord.compare(["fedavg"], seeds=(0, 1), **asked)
    lines = [(result.folder / f"fedavg-{seed}" / "metrics.jsonl").read_text().splitlines() for seed in (0, 1)]
    pairs = [(json.loads(a), json.loads(b)) for a, b in zip(*lines, strict=True)]
    assert result.metrics["fedavg", 1] == [b for _, b in pairs]
    for value in ("accuracy", "loss"):
        # of two numbers the sample deviation is their distance over the root of 2
        expected = [(a["round"], (a[value] + b[value]) / 2, abs(a[value] - b[value]) / math.sqrt(2)) for a, b in pairs]
        curve = result.curves(value)["fedavg"]
        assert [point[0] for point in curve] == [1, 2, 3, 4, 5]
        assert curve == [pytest.approx(point) for point in expected]
    assert (result.folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(DataError, match=r"no run has a value 'los' to draw. Did you mean 'loss'\?"):
        result.plot("los")
    assert result.curves("nothing") == {"fedavg": []}


def test_own_data_and_network_reach_every_run(asked: dict[str, Any], tmp_path: Path) -> None:
    result = accord.compare(["fedavg", "fedprox"], seeds=(0, 1), **asked)
    for algorithm, seed in result.metrics:
        alone = accord.run(
            load_config(None, [*SETS, f"algorithm.name={algorithm}", f"seed={seed}", f"out={tmp_path / 'alone'}"]),
            data=hospitals(),
            model=network(),
        )
        assert result.metrics[algorithm, seed] == alone.metrics


def test_a_run_that_fails_costs_no_other_and_goes_on_to_the_same_numbers(asked: dict[str, Any], tmp_path: Path) -> None:
    breaker, notes = Breaker(RunError("the disk is full")), Notes()
    first = accord.compare(
        ["fedavg", "scaffold"],
        seeds=(0, 1),
        observers=lambda config: [breaker] if (config.algorithm.name, config.seed) == ("scaffold", 0) else [],
        progress=notes,
        **asked,
    )
    assert first.failed == {("scaffold", 0): "the disk is full"}
    assert set(first.metrics) == {("fedavg", 0), ("fedavg", 1), ("scaffold", 1)}
    assert first.rows[1].seeds == (1,)
    assert json.loads((first.folder / "compare.json").read_text())["failed"] == {"scaffold, seed 0": "the disk is full"}
    assert breaker.closed
    assert notes.lines == [
        "1/4 fedavg-0 new", "2/4 fedavg-1 new",
        "3/4 scaffold-0 new", "scaffold-0 failed: the disk is full", "4/4 scaffold-1 new",
    ]  # fmt: skip
    notes.lines.clear()
    again = accord.compare(["fedavg", "scaffold"], seeds=(0, 1), progress=notes, **asked)
    assert notes.lines == [
        "1/4 fedavg-0 finished", "2/4 fedavg-1 finished", "3/4 scaffold-0 begun", "4/4 scaffold-1 finished",
    ]  # fmt: skip
    assert again.failed == {}
    undisturbed = accord.compare(
        ["scaffold"], seeds=(0,), **{**asked, "sets": [*SETS, f"out={tmp_path / 'undisturbed'}"]}
    )
    assert again.metrics["scaffold", 0] == undisturbed.metrics["scaffold", 0]


def test_after_ctrl_c_the_same_call_goes_on(asked: dict[str, Any]) -> None:
    breaker = Breaker(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        accord.compare(["fedavg"], observers=lambda config: [breaker] if config.seed == 1 else [], **asked)
    assert breaker.closed
    notes = Notes()
    result = accord.compare(["fedavg"], progress=notes, **asked)
    assert notes.lines == ["1/3 fedavg-0 finished", "2/3 fedavg-1 begun", "3/3 fedavg-2 new"]
    assert [len(records) for records in result.metrics.values()] == [5, 5, 5]


def test_the_same_call_finds_the_runs_of_data_chosen_by_name(tmp_path: Path) -> None:
    """The data settles what is left open (its task), and the runs' folders say so."""
    sets = ["rounds=1", "data.limit=100", "partition.clients=4", "executor=sequential", f"out={tmp_path}"]
    notes = Notes()
    for _ in range(2):
        accord.compare(["fedavg"], seeds=(0,), sets=sets, progress=notes)
    assert notes.lines == ["1/1 fedavg-0 new", "1/1 fedavg-0 finished"]


def test_a_pool_of_processes_can_carry_out_the_runs(asked: dict[str, Any]) -> None:
    inputs = Inputs(asked["data"], asked["model"])
    comparison = Comparison(None, asked["sets"], ["fedavg"], [0, 1], inputs=inputs)
    entries = comparison.entries()
    comparison.claim()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        for task in [pool.submit(carry_out, entry, inputs) for entry in entries]:
            task.result()
    notes = Notes()
    result = accord.compare(["fedavg"], seeds=[0, 1], progress=notes, **asked)
    assert notes.lines == ["1/2 fedavg-0 finished", "2/2 fedavg-1 finished"]
    assert [len(records) for records in result.metrics.values()] == [5, 5]


def test_all_fail(asked: dict[str, Any]) -> None:
    result = accord.compare(["fedavg"], seeds=[0], observers=lambda config: [Breaker(RunError("no"))], **asked)
    assert result.rows == []
    assert result.failed == {("fedavg", 0): "no"}
    assert sorted(path.name for path in result.folder.iterdir()) == ["compare.json", "fedavg-0", "given.txt"]


def test_settings_may_come_from_a_file_a_configuration_or_changes(asked: dict[str, Any], tmp_path: Path) -> None:
    sets = asked.pop("sets")
    config = load_config(None, sets)
    path = tmp_path / "common.toml"
    path.write_text(
        f'out = "{config.out}"\nrounds = 5\nexecutor = "sequential"\n'
        '[partition]\nname = "natural"\nclients = 3\n[clients]\ncount = 1\n[local]\nbatch_size = 8\nepochs = 3\n'
    )
    first = accord.compare(["fedavg"], seeds=[0], sets=sets, **asked)
    for given in (config, path, str(path)):
        notes = Notes()
        assert accord.compare(["fedavg"], config=given, seeds=[0], progress=notes, **asked).folder == first.folder
        assert notes.lines == ["1/1 fedavg-0 finished"]


def test_an_algorithms_settings_in_a_configuration_are_its_own(asked: dict[str, Any]) -> None:
    config = load_config(None, [*asked.pop("sets"), "algorithm.name=fedprox", "algorithm.mu=0.5"])
    result = accord.compare(["fedavg", "fedprox"], config=config, seeds=[0], **asked)
    made = load_config(result.folder / "fedprox-0" / "config.toml")
    assert made.algorithm.options["mu"] == 0.5
    plain = accord.compare(["fedavg"], config=replace(config, algorithm=RunConfig().algorithm), seeds=[0], **asked)
    assert plain.folder != result.folder


def test_a_file_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "common.toml"
    path.write_text("rounds = 5\n")
    comparison = Comparison(path, [], ["fedavg"], [0])
    path.write_text("rounds = 6\n")
    assert comparison.entries()[0].config.rounds == 5


def test_other_data_or_weights_get_another_folder(asked: dict[str, Any]) -> None:
    folders = [
        accord.compare(["fedavg"], seeds=[0], **{**asked, **other}).folder
        for other in ({}, {"data": hospitals(1)}, {"model": network(1)}, {"data": hospitals(), "model": network()})
    ]
    assert len(set(folders)) == 3
    assert folders[3] == folders[0], "the same samples and weights are the same, whoever made them"


def test_a_folder_with_a_name_keeps_its_data(asked: dict[str, Any]) -> None:
    asked["sets"].append("name=mine")
    assert accord.compare(["fedavg"], seeds=[0], **asked).folder.name == "mine"
    for algorithm, other in (("fedavg", hospitals(1)), ("fedprox", hospitals(1)), ("fedprox", None)):
        with pytest.raises(ConfigError, match=r"other data or another network.*name"):
            accord.compare([algorithm], seeds=[0], **{**asked, "data": other})
    assert set(accord.compare(["fedavg", "fedprox"], seeds=[0], **asked).metrics) == {("fedavg", 0), ("fedprox", 0)}


def test_a_picture_is_an_extra(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    notes = Notes()
    result = accord.compare(["fedavg"], seeds=[0], progress=notes, **asked)
    assert "matplotlib" in notes.lines[-1]
    assert result.rows
    assert not (result.folder / "curves.png").exists()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"algorithms": ["fedavg", "fedprx"]}, "unknown 'fedprx'.*Did you mean 'fedprox'"),
        ({"algorithms": ["fedavg", "fedprox", "fedavg"]}, "'fedavg' is there more than once"),
        ({"algorithms": []}, "algorithms: name at least one"),
        ({"algorithms": "fedavg"}, "algorithms: give a list, not 'fedavg'"),
        ({"algorithms": [accord.run]}, "algorithms: must be texts"),
        ({"seeds": []}, "seeds: name at least one"),
        ({"seeds": 3}, "seeds: give a list, not 3"),
        ({"seeds": [0, -1]}, "at least 0, not -1"),
        ({"seeds": [1, 1]}, "1 is there more than once"),
        ({"seeds": [0.5]}, "must be a whole number, not 0.5"),
        ({"seeds": [True]}, "must be a whole number, not True"),
        ({"sets": "rounds=3"}, "sets: give a list"),
        ({"sets": ["seed=3"]}, "seeds="),
        ({"sets": ["algorithm.mu=3"]}, "none of fedavg has this setting"),
        ({"config": "nowhere.toml"}, "no such file"),
        ({"tune": 1}, "at least 2, not 1"),
        ({"tune": 2.5}, "must be a whole number, not 2.5"),
        ({"tune": 2, "tune_rounds": 0}, "at least 1, not 0"),
        ({"tune_rounds": 2}, "goes with tune"),
        ({"data": torch.zeros(3, 4)}, "data is a Tensor: give what accord.from_arrays"),
        ({"model": torch.nn.Linear}, "model is a type: give a torch module"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_any_work(
    wrong: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=words):
        accord.compare(**{"algorithms": ["fedavg"], **wrong})
    assert list(tmp_path.iterdir()) == []


def test_data_that_cannot_be_used_is_an_error_of_the_call(asked: dict[str, Any]) -> None:
    data = hospitals()
    broken = replace(data, train=replace(data.train, y=data.train.y + 1))
    with pytest.raises(DataError, match="labels of the train part are not class numbers"):
        accord.compare(["fedavg"], **{**asked, "data": broken})
