"""`accord reproduce` and `accord list experiments`, and the same without typer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from accord.cli.app import app

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("id", ["ufo-t1", "rane-f8:fedrane"])
def test_a_smoke_test_runs_every_row_and_prints_the_table(id: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["reproduce", id, "--scale", "smoke", "--runs", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "Still to run" not in done.output
    assert "FedUFO" in done.output or "FedRANE" in done.output
    assert "the numbers mean nothing" in done.output


def test_parts_of_several_experiments_run_as_one_queue(tmp_path: Path) -> None:
    parts = ["ufo-f4:lambda3", "rane-f8:fedrane"]
    done = CliRunner().invoke(app, ["reproduce", *parts, "--scale", "smoke", "--runs", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert done.output.index("ufo-f4: Figure 4") < done.output.index("rane-f8: Figure 8")
    assert "2 runs, 0 of them done before" in done.output
    assert {path.name for path in tmp_path.glob("*.html")} == {"ufo-f4-smoke.html", "rane-f8-smoke.html"}
    both = CliRunner().invoke(app, ["reproduce", *parts, "--rows", "lambda3"])
    assert both.exit_code == 2
    assert "--rows and --places go with one experiment" in both.output


def test_experiments_are_listed() -> None:
    done = CliRunner().invoke(app, ["list", "experiments", "--json"])
    lines = {line["id"]: line for line in json.loads(done.output)}
    assert lines["ufo-t1"]["runs"] == 18, "eight rows on MNIST and on CIFAR-10, two of ours on MNIST"
    assert 14 <= lines["ufo-t1"]["begun"] <= 18
    assert lines["rane-t2"]["paper"] == "fedrane"
    assert "br-t1" in CliRunner().invoke(app, ["list", "experiments"]).output


def test_what_is_wrong_is_said_in_a_sentence() -> None:
    done = CliRunner().invoke(app, ["reproduce", "ufo-t9"])
    assert done.exit_code == 2
    assert "unknown experiment 'ufo-t9'" in done.output
    assert CliRunner().invoke(app, ["reproduce"]).exit_code == 2


def test_pages_are_written(tmp_path: Path) -> None:
    results = str(ROOT / "results")
    done = CliRunner().invoke(app, ["reproduce", "br-t1", "--page", "--results", results, "--docs", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "# FedBR" in (tmp_path / "fedbr.md").read_text(encoding="utf-8")
    assert (tmp_path / "figures" / "br-t1-rounds.svg").is_file()


def test_without_typer_and_rich(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['typer'] = sys.modules['rich'] = sys.modules['matplotlib'] = None\n"
        "sys.argv = ['papers', 'ufo-t1', '--show', '--results', sys.argv[1]]\n"
        "from accord.papers.__main__ import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr
    assert "96.75±0.07" in done.stdout


@pytest.mark.parametrize("arguments", [["ufo-t1", "--show"], []])
def test_a_reader_who_has_seen_enough_gets_no_traceback(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "accord.papers", *arguments]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env={"PYTHONPATH": str(ROOT / "src")})
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")
