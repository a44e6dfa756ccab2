"""What the documentation says is so: tables of methods, commands, settings, links, figures of the code itself."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import accord.authoring
from accord.cli.app import app
from accord.cli.lists import variants
from accord.config import load_config
from accord.core.methods import ALGORITHMS
from accord.data.division import CLIENTS
from accord.engine.build import build_data
from accord.papers.asked import Asked
from accord.study.inputs import Inputs
from accord.study.plan import Comparison, Tuning
from support.pages import PAGES, ROOT, blocks

WIDTH = 120


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
        assert [Asked.read(text) for text in given["ids"] or ()] or given["pages"]


@pytest.mark.parametrize("text", sorted(set(re.findall(r"--set\s+([\w.]+=[\w.]+)", (ROOT / "README.md").read_text()))))
def test_settings_in_the_text_are_settings(text: str) -> None:
    load_config(sets=[text])


def test_a_round_passes_as_many_files_as_the_architecture_says() -> None:
    entered = runpy.run_path(str(ROOT / "scripts" / "round_files.py"))["entered"]
    page = " ".join((ROOT / "docs" / "architecture.md").read_text().split())
    said = re.search(r"A FedAvg round passes (\d+) files .*?, (\d+) where a checkpoint is written", page)
    assert said is not None
    counted = len(entered("checkpoint.every=0")), len(entered())
    assert (int(said[1]), int(said[2])) == counted, "write the new numbers there"
    assert counted[0] <= 40
