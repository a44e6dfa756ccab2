"""The benchmarks still run; their figures are nobody's business here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_methods_are_measured_against_fedavg(tmp_path: Path) -> None:
    small = ["--model", "2nn", "--clients", "2", "--samples", "8", "--batch", "4", "--epochs", "1", "--rounds", "1"]
    where = tmp_path / "found.json"
    shown = run("benchmarks/bench_methods.py", "--algorithms", "fedbr,fedufo", *small, "--json", str(where))
    assert "| fedbr |" in shown
    assert set(json.loads(where.read_text())["methods"]) == {"fedavg", "fedbr", "fedufo"}


def test_a_grid_is_run_and_read_at_a_round(tmp_path: Path) -> None:
    settings = ["rounds=2", "data.limit=60", "partition.clients=3", "partition.name=iid", "checkpoint.every=0"]
    sets = [word for setting in settings for word in ("--set", setting)]
    grid = ["--jobs", "1", "--algorithms", "fedavg", "--seeds", "0", "--out", str(tmp_path), "--name", "grid"]
    run("benchmarks/run_grid.py", *grid, *sets)
    shown = run("benchmarks/table_at_round.py", str(tmp_path / "grid"), "--round", "2", "--last", "2")
    assert "| fedavg | 1 |" in shown


def test_layers_are_measured_against_torchs(tmp_path: Path) -> None:
    where = tmp_path / "found.json"
    shown = run("benchmarks/bench_layers.py", "--models", "report_cnn", "--turns", "1", "--json", str(where))
    assert "| report_cnn |" in shown
    assert set(json.loads(where.read_text())["step"]["report_cnn"]) == {"torch_ms", "quick_ms", "ratio"}


def test_rows_of_a_plan_are_run_several_at_a_time_and_collected(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'sets = ["data.limit=60", "partition.clients=3", "partition.name=iid", "executor=sequential", "device=cpu"]\n'
        '[[experiment]]\nid = "one"\nsets = ["rounds=2"]\n'
        '[[experiment.row]]\nname = "later"\nturn = 1\n'
        '[[experiment.row]]\nname = "first"\nsets = ["local.lr=0.1"]\n'
        '[[experiment.row]]\nname = "never"\nskip = true\n'
    )
    rows = ["benchmarks/gpu_rows.py", "run", str(plan), "--runs", str(tmp_path / "runs"), "--jobs", "1"]
    said = [line.split("  ")[-1] for line in run(*rows).splitlines() if "started" in line]
    assert said == ["one/first", "one/later"]
    assert "started" not in run(*rows)  # finished rows are not run again
    collect = ["benchmarks/gpu_rows.py", "collect", str(plan), "--runs", str(tmp_path / "runs")]
    run(*collect, "--out", str(tmp_path / "results"))
    found = json.loads((tmp_path / "results" / "one" / "first.json").read_text())
    assert found["finished"]
    assert found["rounds_done"] == 2
    assert "local.lr=0.1" in found["settings"]
    assert [one["round"] for one in found["evaluations"]] == [1, 2]
    assert found["broke_off"] == ""
    assert found["gpu_seconds"] > 0
    assert {path.stem for path in (tmp_path / "results" / "one").iterdir()} == {"first", "later"}


def test_a_row_that_broke_off_says_why_and_the_device_is_shared_out(tmp_path: Path) -> None:
    # a alone for 10 s, a and b for 20, b alone for 5.
    turns = [(0, "a", True), (30, "a", False), (10, "b", True), (35, "b", False)]
    lines = [json.dumps({"at": at, "row": row, "began": began}) for at, row, began in turns]
    (tmp_path / "turns.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "bad.log").write_text("Traceback ...\naccord.errors.DivergedError: training diverged in round 3\n")
    (tmp_path / "told.log").write_text("Traceback ...\nKeyboardInterrupt\n")
    code = (
        "import json, pathlib, sys; sys.path.insert(0, 'benchmarks'); import gpu_rows; p = pathlib.Path(sys.argv[1]); "
        "print(json.dumps([gpu_rows.shares(p), *(gpu_rows.broke_off(p / n) for n in ('bad', 'told', 'none'))]))"
    )
    assert json.loads(run("-c", code, str(tmp_path))) == [
        {"a": 20.0, "b": 15.0},
        *("training diverged in round 3", "", ""),
    ]


@pytest.mark.slow  # it waits for clocks
def test_rows_stop_when_the_time_is_over_and_go_on_later(tmp_path: Path) -> None:
    plan, runs = tmp_path / "plan.toml", tmp_path / "runs"
    settings = '["data.limit=60", "partition.clients=3", "executor=sequential", "device=cpu", "rounds=100000"]'
    plan.write_text(f'[[experiment]]\nid = "one"\nsets = {settings}\n[[experiment.row]]\nname = "long"\n')
    lengths = []
    for _ in range(2):
        run("benchmarks/gpu_rows.py", "run", str(plan), "--runs", str(runs), "--minutes", "0.25")
        lengths.append(len((runs / "one" / "long" / "metrics.jsonl").read_text().splitlines()))
    assert 0 < lengths[0] < lengths[1]


def test_the_page_on_fedbr_is_the_one_its_records_give() -> None:
    page = ROOT / "docs" / "results" / "fedbr_question.md"
    code = "import sys; sys.path.insert(0, 'benchmarks'); import fedbr_question as f; print(f.page(), end='')"
    assert run("-c", code) == page.read_text(encoding="utf-8")
