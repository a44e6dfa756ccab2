"""The benchmarks still run; their figures are nobody's business here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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


def test_fedufos_work_is_counted_term_by_term(tmp_path: Path) -> None:
    where = tmp_path / "found.json"
    shown = run("benchmarks/bench_fedufo.py", "--small", "--device", "cpu", "--json", str(where))
    assert "| fedufo |" in shown
    found = json.loads(where.read_text())["operations"]
    steps = found["fedavg"]["train steps"]
    assert found["cgr"]["prior steps"] == found["cgr"]["train steps"] == steps  # it trains twice
    epoch = found["cgl"]["train begin"]  # the frozen model, once over a client's samples
    assert found["cgr"]["train begin"] == 3 * epoch  # each of the group
    assert found["fedufo"] == found["all"]  # what sampling goes by is read off what CGL asks for


def test_the_ways_to_ask_frozen_models_agree() -> None:
    few = ["--clients", "2", "--samples", "4", "--turns", "1", "--set", "model.name=report_cnn"]
    shown = run("benchmarks/bench_frozen.py", "--device", "cpu", *few)
    ways = ["one by one", "torch's layers", "recorded", *(f"together, {most}" for most in (1024, 2048, 4096))]
    assert [line.split("|")[1].strip() for line in shown.splitlines()[2:]] == ways


def test_layers_are_measured_against_torchs(tmp_path: Path) -> None:
    where = tmp_path / "found.json"
    shown = run("benchmarks/bench_layers.py", "--models", "report_cnn", "--turns", "1", "--json", str(where))
    assert "| report_cnn |" in shown
    assert set(json.loads(where.read_text())["step"]["report_cnn"]) == {"torch_ms", "quick_ms", "ratio"}


def test_filters_are_measured(tmp_path: Path) -> None:
    where = tmp_path / "found.json"
    shown = run("benchmarks/bench_filters.py", "--rounds", "1", "--clients", "60", "--json", str(where))
    assert "| top-k 1 % |" in shown
    rows = json.loads(where.read_text())["rows"]
    assert rows["central"]["epsilon"] <= 8
    assert rows["8 bit"]["bytes_up"] < 0.26 * rows["none"]["bytes_up"]


def test_attacks_are_measured_rule_by_rule(tmp_path: Path) -> None:
    where = tmp_path / "found.json"
    few = ["--partitions", "iid", "--seeds", "0", "--rounds", "1", "--samples", "100", "--rules", "2"]
    shown = run("benchmarks/bench_attacks.py", *few, "--json", str(where))
    assert "| sign_flip, 5 times |" in shown
    found = json.loads(where.read_text())["accuracy"]["iid"]
    assert {tuple(rules) for rules in found.values()} == {("fedavg", "median")}


def test_a_digit_is_read_out_of_an_update(tmp_path: Path) -> None:
    """One sample and one step hide nothing: the mean digit is at 9 dB, and 20 is a digit one can read."""
    where, picture = tmp_path / "found.json", tmp_path / "found.png"
    small = ["--cases", "1", "--iterations", "60"]
    run("examples/security/gradient_inversion.py", *small, "--json", str(where), "--png", str(picture))
    (case,) = json.loads(where.read_text())["cases"].values()
    assert case["psnr"] > 20 > case["mean_digit"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_diagnosis_is_held_against_what_is_known(tmp_path: Path) -> None:
    where = tmp_path / "found.json"
    few = ["--seeds", "100", "--clients", "6", "--only", "iid table;concept, table", "--quick"]
    shown = run("benchmarks/calibrate_diagnosis.py", "findings", *few, "--json", str(where))
    assert "| concept, table | " in shown
    assert json.loads(where.read_text())["cases"] == 2
