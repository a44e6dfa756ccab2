"""What the documentation says is so: tables of methods, commands, settings, Python, figures of the code itself."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import typer
from torch import nn
from typer.testing import CliRunner

import accord
import accord.authoring
from accord.cli.app import app
from accord.cli.lists import variants
from accord.config import load_config
from accord.core.methods import ALGORITHMS
from accord.data.division import CLIENTS
from accord.engine.build import build_data
from accord.measures import MEASURES
from accord.papers import shelf
from accord.study.inputs import Inputs
from accord.study.plan import Comparison, Tuning

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
WIDTH = 120
SMALL = ("rounds=1", "local.epochs=1", "executor=sequential", "device=cpu")


def blocks(page: str, language: str = "") -> Iterator[str]:
    """The fenced code of a page."""
    for said, text in re.findall(r"^```(\w*)\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE):
        if said == language:
            yield text


def commands() -> list[str]:
    """Every `accord ...` of the pages' code and of the Makefile's demo."""
    text = [block for page in PAGES for block in blocks(page.read_text())]
    text += re.findall(r"^    (.*)$", "\n".join(page.read_text() for page in PAGES), flags=re.MULTILINE)
    text += re.findall(r"^\t\$\(BIN\)/(accord .*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    lines = [line.strip() for part in text for line in part.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("accord ")]


def test_the_tables_of_methods_are_those_of_the_code() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "method_table.py"), "--check"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    looked = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert looked.returncode == 0, looked.stdout + looked.stderr


def test_authors_learn_at_most_25_names() -> None:
    names = accord.authoring.__all__
    assert len(names) == len(set(names)) <= 25
    assert all(hasattr(accord.authoring, name) for name in names)
    public = {name for name in vars(accord.authoring) if not name.startswith("_")}
    assert public == set(names), "what is not listed must not be found there either"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_prose_is_wrapped(page: Path) -> None:
    """Tables, headings, commands and a link by itself may be longer, and what a program wrote."""
    if re.search(r"^Written by `python ", page.read_text(), flags=re.MULTILINE):
        pytest.skip("its lines are the program's")
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    long = [line for line in text.splitlines() if len(line) > WIDTH and len(line.split()) > 1]
    assert not [line for line in long if not line.startswith(("|", "#", "    "))]


def test_there_are_commands_to_look_at() -> None:
    assert len(commands()) >= 10
    assert {line.split()[1] for line in commands()} >= {"run", "resume", "compare", "describe", "list", "explain"}


@pytest.mark.parametrize("line", commands())
def test_commands_are_accepted(line: str) -> None:
    """Options are the command line's, settings and names those of the code."""
    name, *words = shlex.split(line, comments=True)[1:]
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    if name == "federation":  # tests/federation runs them
        name, *words = words
        command = command.commands[name]
    given = command.make_context(name, list(words)).params
    sets = given.get("sets") or []
    if given.get("imports"):
        pytest.skip("names a module of the reader's")
    if name == "compare":
        tuning = Tuning(given["tune"], given["tune_rounds"]) if given["tune"] else None
        seeds = [int(seed) for seed in given["seeds"].split(",")]
        names = variants(given["algorithms"], "--algorithms")
        assert Comparison(None, sets, names, seeds, tuning, Inputs(), given["sweep"] or ()).entries(None)
    else:
        chosen = given.get("algorithm")
        config = load_config(sets=[*sets, *([f"algorithm.name={chosen}"] if chosen else [])])
        if name in ("run", "describe"):
            assert len(build_data(config)) == (config.partition.clients or CLIENTS), "the data can be dealt that way"
    if name == "explain":
        assert given["name"] in ALGORITHMS
    if name == "reproduce":
        assert given["id"] in shelf.names()


def test_python_about_own_data_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first block to the last, beside a small table."""
    rng = np.random.default_rng(0)
    ill = rng.integers(0, 2, 60)
    patients = {"age": 40 + 20 * ill, "pulse": rng.normal(70, 5, 60), "smokes": ill > 0}
    sites = {"hospital": np.repeat(["Aix", "Lyon", "Pau"], 20), "outcome": np.where(ill, "ill", "well")}
    pd.DataFrame({**patients, **sites}).to_csv(tmp_path / "patients.csv", index=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(accord, "load_config", lambda sets=(): load_config(sets=[*sets, *SMALL]))
    x, y = rng.normal(size=(60, 5)).astype(np.float32), np.arange(60) % 3
    known = {"accord": accord, "nn": nn, "x": x, "y": y, "hospital": pd.Series(sites["hospital"])}
    page = (ROOT / "docs" / "own_data.md").read_text()
    exec("\n".join(blocks(page, "python")), known)
    assert known["outcome"].summary["client_names"] == ["Aix", "Lyon", "Pau"]  # type: ignore[attr-defined]
    assert known["outcome"].folder.name == "fedavg-own-s0"  # type: ignore[attr-defined]
    assert known["data"].inputs.tensor([{"age": 40, "pulse": 70, "smokes": True}]).shape == (1, 3)  # type: ignore[attr-defined]
    (said,) = blocks(page, "toml")
    (tmp_path / "mine.toml").write_text(said)
    assert build_data(load_config("mine.toml")).names == ("Aix", "Lyon", "Pau")


def test_python_about_diagnoses_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    y = np.arange(90) % 3
    x = (rng.normal(size=(90, 5)) + y[:, None]).astype(np.float32)
    known: dict[str, object] = {"x": x, "y": y, "hospital": np.repeat(["Aix", "Lyon", "Pau"], 30)}
    exec("\n".join(blocks((ROOT / "docs" / "diagnose.md").read_text(), "python")), known)
    assert (tmp_path / "diagnosis.html").is_file()


def test_python_about_tasks_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first block to the last, a round each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(accord, "load_config", lambda sets=(): load_config(sets=[*sets, *SMALL]))
    known: dict[str, object] = {}
    with torch.random.fork_rng(devices=[]):
        exec("\n".join(blocks((ROOT / "docs" / "tasks.md").read_text(), "python")), known)
    assert known["outcome"].summary["judged_by"] == "rmse"  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", sorted(set(re.findall(r"--set\s+([\w.]+=[\w.]+)", (ROOT / "README.md").read_text()))))
def test_settings_in_the_text_are_settings(text: str) -> None:
    load_config(sets=[text])


def test_python_about_runs_and_studies_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first block to the last, with small data and few rounds in the place of the reader's."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 240)
    x = (rng.normal(size=(240, 5)) + labels[:, None]).astype(np.float32)
    module = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    known = {"accord": accord, "x": x, "y": labels, "hospital": np.arange(240) % 8, "module": module}

    def small(sets: list[str]) -> accord.RunConfig:
        return load_config(sets=[*sets, *SMALL, "model.name=mlp", "model.hidden=[4]", f"out={tmp_path}"])

    compare, tune = accord.compare, accord.tune
    monkeypatch.setattr(accord, "load_config", small)
    monkeypatch.setattr(accord, "compare", lambda *names, tune, **given: compare(*names, tune=2, seeds=(0, 1), **given))
    monkeypatch.setattr(accord, "tune", lambda *names, trials, **given: tune(*names, trials=2, **given))
    monkeypatch.setattr(MEASURES, "_entries", dict(MEASURES._entries))
    with torch.random.fork_rng(devices=[]):
        exec("\n".join(blocks((ROOT / "docs" / "python.md").read_text(), "python")), known)
    assert known["outcome"].summary["accuracy"] > 0  # type: ignore[attr-defined]
    assert not known["result"].failed  # type: ignore[attr-defined]
    assert len(known["result"].rows) == 2  # type: ignore[attr-defined]
    assert "error_rate" in MEASURES
    assert len(known["replies"]) == 4  # type: ignore[arg-type]


def patients(folder: Path) -> None:
    """The table the README speaks of, and rows whose outcome nobody knows."""
    rng = np.random.default_rng(0)
    ill = rng.integers(0, 2, 90)
    known = pd.DataFrame({"age": 40 + 20 * ill, "marker": ill + rng.normal(0, 0.1, 90)})
    known.tail(3).to_csv(folder / "arriving.csv", index=False)
    known = known.assign(diagnosis=np.where(ill, "ill", "well"), hospital=np.repeat(["Aix", "Lyon", "Pau"], 30))
    known.to_csv(folder / "patients.csv", index=False)


def test_commands_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other as they stand, with a round in the place of many."""
    patients(tmp_path)
    monkeypatch.chdir(tmp_path)
    lines = [line.strip() for block in blocks((ROOT / "README.md").read_text()) for line in block.splitlines()]
    asked = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("accord ")]
    assert {name for name, *_ in asked} >= {"run", "compare", "predict", "resume", "export", "settings", "list"}
    for words in asked:
        if words[0] == "reproduce":  # a minute; tests/cli/test_cli_reproduce.py runs it
            continue
        few = words[0] in ("run", "compare")
        small = [part for text in (*SMALL, "checkpoint.every=1") for part in ("--set", text)] if few else []
        seeds = ["--seeds", "0"] if words[0] == "compare" else []
        done = CliRunner().invoke(app, [*words, *small, *seeds])
        assert done.exit_code == 0, f"{words}: {done.output}"
    assert (tmp_path / "model.onnx").is_file()


def test_python_in_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patients(tmp_path)
    monkeypatch.chdir(tmp_path)
    run, compare = accord.run, accord.compare
    small = load_config(sets=SMALL)
    monkeypatch.setattr(accord, "run", lambda **given: run(**{**given, "rounds": 2}, sets=SMALL))
    monkeypatch.setattr(accord, "compare", lambda *names, data: compare(*names, data=data, config=small, seeds=(0,)))
    known: dict[str, object] = {}
    exec("\n".join(blocks((ROOT / "README.md").read_text(), "python")), known)
    assert {row["site"] for row in known["outcome"].sites()} == {"Aix", "Lyon", "Pau"}  # type: ignore[attr-defined]
    assert known["model"].predict([{"age": 61, "marker": 1.0}])[0] in ("ill", "well")  # type: ignore[attr-defined]


def test_a_round_passes_as_many_files_as_the_architecture_says() -> None:
    entered = runpy.run_path(str(ROOT / "scripts" / "round_files.py"))["entered"]
    page = " ".join((ROOT / "docs" / "architecture.md").read_text().split())
    said = re.search(r"A FedAvg round passes (\d+) files .*?, (\d+) where a checkpoint is written", page)
    assert said is not None
    counted = len(entered("checkpoint.every=0")), len(entered())
    assert (int(said[1]), int(said[2])) == counted, "write the new numbers there"
    assert counted[0] <= 40
