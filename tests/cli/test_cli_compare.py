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


def rows() -> list[str]:
    return [row["algorithm"] for row in json.loads((only_folder() / "compare.json").read_text())["rows"]]


def test_variants_and_sweeps_are_rows(accord: Callable[..., Any], engine: Any) -> None:
    Path("common.toml").write_text("rounds = 2\n")
    command = ("compare", "--seeds", "0", "--algorithms", "fedprox: mu=0.1", "fedprox: mu=1", "fedavg,scaffold")
    assert accord(*command, "common.toml").exit_code == 0
    assert rows() == ["fedprox: mu=0.1", "fedprox: mu=1", "fedavg", "scaffold"]
    assert load_config(only_folder() / "fedprox,mu=0.1-0" / "config.toml").algorithm.options["mu"] == 0.1
    assert load_config(only_folder() / "fedavg-0" / "config.toml").rounds == 2
    swept = ("compare", "common.toml", "--seeds", "0", "--algorithms", "fedprox", "--sweep", "algorithm.mu=0.2,0.3")
    result = accord(*swept, "local.lr=0.1,0.2", "--name", "grid")
    assert result.exit_code == 0, result.output
    grid = json.loads(Path("runs/grid/compare.json").read_text())["rows"]
    assert [row["algorithm"] for row in grid] == [
        f"fedprox: mu={mu}, local.lr={lr}" for mu in (0.2, 0.3) for lr in (0.1, 0.2)
    ]


def test_a_comparison_takes_nothing_from_another(accord: Callable[..., Any], engine: Any) -> None:
    base = ("compare", "--seeds", "0,1", "--rounds", 2, "--tune", 2)
    assert accord(*base, "--algorithms", "fedavg").exit_code == 0
    second = accord(*base, "--algorithms", "fedprox")
    assert second.exit_code == 0
    assert "fedavg" not in second.stdout, "what was asked for is printed"
    assert set(rows()) == {"fedavg", "fedprox"}, "the table has both"
    table = (only_folder() / "table.md").read_text()
    assert "| fedavg | 2 | " in table
    assert "| fedavg | trial " in table
    engine.calls.clear()
    assert accord(*base, "--algorithms", "fedavg", "--set", "local.lr=0.3", "--name", only_folder().name).exit_code == 2
    assert engine.calls == []


def test_differences_are_printed_and_kept(accord: Callable[..., Any], engine: Any) -> None:
    # every seed adds 0.01 to both, so all pairs differ by 0.1
    command = ("compare", "--algorithms", "fedavg,fedprox", "--seeds", "0,1,2", "--rounds", 2)
    result = accord(*command)
    assert "difference to the best, fedprox, in accuracy %" in result.stdout
    assert "-10.00 to -10.00" in result.stdout
    kept = json.loads((only_folder() / "compare.json").read_text())["differences"]
    assert kept["rows"][0]["mean"] == pytest.approx(-0.1)
    assert kept["rows"][0]["told_apart"] is True
    assert "| fedavg | -10.00 | -10.00 to -10.00 | 3 | yes |" in (only_folder() / "table.md").read_text()
    assert "+10.00 to +10.00" in accord(*command, "--baseline", "fedavg").stdout
    wrong = accord(*command, "--baseline", "scaffold")
    assert wrong.exit_code == 2
    assert "is not among what is compared" in wrong.stderr


def test_a_narrow_terminal_shows_what_fits_and_names_the_rest(
    accord: Callable[..., Any], engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    result = accord("compare", "--algorithms", "fedavg,fedprox", "--seeds", "0,1", "--rounds", 2)
    assert max(map(len, result.stdout.splitlines())) <= 60
    assert "80.50 ± 0.71" in result.stdout
    assert "more columns in table.md" in " ".join(result.stdout.split())
    assert "…" not in result.stdout


def test_jobs(accord: Callable[..., Any], engine: Any) -> None:
    command = ("compare", "--algorithms", "fedavg", "--seeds", "0,1,2", "--rounds", 2)
    result = accord(*command, "--jobs", "2")
    assert result.exit_code == 0, result.output
    assert engine.calls == [], "in processes of their own"
    assert "[3/3] fedavg, seed 2: new" in result.stderr
    assert "81.00 ± 1.00" in result.stdout
    for wrong in ("0", "many", "-1"):
        assert accord(*command, "--jobs", wrong, "--name", "x").exit_code == 2


def test_a_table_of_runs_that_exist(accord: Callable[..., Any], engine: Any) -> None:
    for seed in (0, 1):
        for algorithm, mu in (("fedavg", None), ("fedprox", 0.1), ("fedprox", 0.2)):
            own = () if mu is None else ("--set", f"algorithm.mu={mu}")
            name = f"{algorithm}{mu}-{seed}"
            assert (
                accord("run", "-q", "-a", algorithm, "--seed", seed, "--rounds", 2, "--name", name, *own).exit_code == 0
            )
    result = accord("table", "runs", "--csv")
    assert result.exit_code == 0, result.output
    lines = [line.split(",")[:3] for line in result.stdout.splitlines()]
    assert [line[0] for line in lines] == ["algorithm", "fedavg", "fedprox: mu=0.1", "fedprox: mu=0.2"]
    assert [float(line[2]) for line in lines[1:]] == pytest.approx([0.805, 0.905, 0.905])
    one = accord("table", "runs/fedavgNone-0", "runs/fedprox0.1-0", "--markdown").stdout
    assert "| fedprox | 1 | **90.00**" in one
    assert "needs at least 2 seeds" in one
    assert r"fedavg & 2 & 80.50 $\pm$ 0.71" in accord("table", "runs", "--latex").stdout
    assert "difference to fedavg" in accord("table", "runs", "--baseline", "fedavg").stdout
    for wrong, words in (
        (("nowhere",), "there is no such folder"),
        (("runs", "--csv", "--latex"), "choose one of them"),
    ):
        assert words in accord("table", *wrong).stderr
    Path("empty").mkdir()
    assert "holds no finished run" in accord("table", "empty").stderr


def test_a_table_names_a_run_twice_or_with_other_settings(accord: Callable[..., Any], engine: Any) -> None:
    for name, lr in (("a", 0.1), ("b", 0.1), ("c", 0.2)):
        accord("run", "-q", "--rounds", 2, "--name", name, "--set", f"local.lr={lr}")
    assert "have the same settings and seed" in accord("table", "runs").stderr
    found = accord("table", "runs/a", "runs/c", "--csv").stdout.splitlines()
    assert [line.split(",")[0] for line in found[1:]] == ["fedavg: local.lr=0.1", "fedavg: local.lr=0.2"]
