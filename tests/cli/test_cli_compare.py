"""compare: which runs, what is skipped, and the numbers in the table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accord.config import load_config
from accord.errors import DivergedError


def only_folder() -> Path:
    (folder,) = Path("runs").iterdir()
    return folder


def test_every_algorithm_with_every_seed(accord: Callable[..., Any], engine: Any) -> None:
    result = accord("compare", "--algorithms", "fedavg,fedprox", "--seeds", "0,1,2", "--rounds", 4)
    assert result.exit_code == 0, result.output
    assert engine.calls == [("run", f"{a}-{s}") for a in ("fedavg", "fedprox") for s in (0, 1, 2)]
    folder = only_folder()
    assert folder.name.startswith("compare-")
    # fedavg 0.80, 0.81, 0.82: mean 0.81, sample deviation 0.01; worst client 0.25 in all; 3 MB sent
    accuracies = "81.00 ± 1.00 | 81.00 ± 1.00 | 71.00 ± 1.00"
    row = f"| fedavg | 3 | {accuracies} | 25.00 ± 0.00 | 12.50 ± 0.00 | 3.0 MB | 12.5 ± 0.0 |"
    assert row in (folder / "table.md").read_text()
    assert "81.00 ± 1.00" in result.stdout
    assert "91.00 ± 1.00" in result.stdout
    assert "personal" not in result.stdout  # nothing measured, no column
    results = json.loads((folder / "compare.json").read_text())
    assert [r["algorithm"] for r in results["rows"]] == ["fedavg", "fedprox"]
    assert results["rows"][1]["accuracy"]["mean"] == pytest.approx(0.91)
    assert results["rows"][1]["accuracy"]["std"] == pytest.approx(0.01)
    assert [r["folder"] for r in results["runs"]][:2] == ["fedavg-0", "fedavg-1"]
    assert results["failed"] == {}
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_second_time_nothing_is_run(accord: Callable[..., Any], engine: Any) -> None:
    command = ("compare", "--algorithms", "fedavg", "--seeds", "0,1", "--rounds", 4)
    accord(*command)
    engine.calls.clear()
    assert accord(*command).exit_code == 0
    assert engine.calls == []
    result = accord("compare", "--algorithms", "fedavg,fedprox", "--seeds", "0,1,2", "--rounds", 4)
    assert result.exit_code == 0  # more of both, in the same folder
    assert engine.calls == [("run", "fedavg-2"), *(("run", f"fedprox-{s}") for s in (0, 1, 2))]
    assert len(list(Path("runs").iterdir())) == 1


def test_after_ctrl_c_the_same_command_goes_on(accord: Callable[..., Any], engine: Any) -> None:
    engine.stop_at, engine.error, engine.only = 2, KeyboardInterrupt(), "fedavg-1"
    command = ("compare", "--algorithms", "fedavg", "--seeds", "0,1,2", "--rounds", 4)
    result = accord(*command)
    assert result.exit_code == 130
    assert "run the same command again" in result.stderr
    engine.calls.clear()
    assert accord(*command).exit_code == 0
    assert engine.calls == [("resume", "fedavg-1"), ("run", "fedavg-2")]


def test_one_that_diverges_does_not_cost_the_others(accord: Callable[..., Any], engine: Any) -> None:
    engine.stop_at, engine.error, engine.only = 2, DivergedError("the loss is nan"), "fedavg-1"
    result = accord("compare", "--algorithms", "fedavg", "--seeds", "0,1,2", "--rounds", 4)
    assert result.exit_code == 1
    assert "1 of 3 runs failed (fedavg, seed 1)" in result.stderr
    results = json.loads((only_folder() / "compare.json").read_text())
    assert results["failed"] == {"fedavg, seed 1": "the loss is nan"}
    assert results["rows"][0]["seeds"] == [0, 2]


def test_when_all_fail_there_is_no_table(accord: Callable[..., Any], engine: Any) -> None:
    engine.stop_at, engine.error, engine.always = 1, DivergedError("the loss is nan"), True
    result = accord("compare", "--algorithms", "fedavg", "--seeds", "0", "--rounds", 4)
    assert result.exit_code == 1
    assert not (only_folder() / "table.md").exists()


def test_settings_of_an_algorithm_reach_those_that_have_them(accord: Callable[..., Any], engine: Any) -> None:
    Path("a.toml").write_text('[algorithm]\nname = "fedprox"\nmu = 0.5\n[local]\nlr = 0.2\n')
    command = ("compare", "a.toml", "--algorithms", "fedavg,fedprox", "--seeds", "3", "--name", "mine")
    assert accord(*command).exit_code == 0
    prox = load_config(Path("runs/mine/fedprox-3/config.toml"))
    assert (prox.algorithm.options["mu"], prox.local.lr) == (0.5, 0.2)
    assert load_config(Path("runs/mine/fedavg-3/config.toml")).local.lr == 0.2
    other = accord(*command, "--set", "algorithm.mu=0.7")
    assert other.exit_code == 2  # not silently the old numbers
    assert "other settings" in other.stderr
    assert "--name" in other.stderr


def test_other_settings_get_another_folder(accord: Callable[..., Any], engine: Any) -> None:
    base = ("compare", "--algorithms", "fedprox", "--seeds", "0", "--rounds", 2)
    for more in ((), ("--set", "algorithm.mu=0.7"), ("--set", "local.lr=0.7"), ("--set", "device=cpu")):
        assert accord(*base, *more).exit_code == 0
    assert len(list(Path("runs").iterdir())) == 3  # the device changes nothing that comes out


def test_folders_that_are_no_runs(accord: Callable[..., Any], engine: Any) -> None:
    command = ("compare", "--algorithms", "fedavg", "--seeds", "0", "--rounds", 2, "--name", "x")
    Path("runs/x/fedavg-0").mkdir(parents=True)  # a stop right after the folder was made
    assert accord(*command).exit_code == 0
    Path("runs/x/fedavg-1").mkdir()
    Path("runs/x/fedavg-1/thesis.txt").write_text("precious")
    result = accord(*command[:4], "0,1", *command[5:])
    assert result.exit_code == 2
    assert "holds no run" in result.stderr
    assert Path("runs/x/fedavg-1/thesis.txt").read_text() == "precious"


def test_repeated_names_and_seeds_count_once(accord: Callable[..., Any], engine: Any) -> None:
    result = accord("compare", "--algorithms", "fedavg, fedavg,", "--seeds", "1,01, 1", "--rounds", 2, "-q")
    assert result.exit_code == 0
    assert engine.calls == [("run", "fedavg-1")]
    assert result.stdout == f"{only_folder()}\n"
