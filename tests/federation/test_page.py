"""docs/federation.md from top to bottom: its commands, as they stand, with the steps between machines done by hand."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from accord.federation.folder import Folder
from accord.federation.processes import waited
from accord.federation.superlink import free_port
from accord.federation.surroundings import surroundings
from accord.federation.up import bring_down
from support.real_federation import command

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "federation.md").read_text()
FEW = ("--set", "model.name=mlp", "--set", "model.hidden=[4]")


def commands(section: str) -> list[list[str]]:
    """What `accord federation` is told under a heading."""
    text = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.M | re.S)
    lines = [line for language, block in blocks if not language for line in block.splitlines()]
    return [shlex.split(line)[2:] for line in lines if line.startswith("accord federation ")]


@pytest.fixture
def clinics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two sites' tables; whatever runs at the end is ended."""
    monkeypatch.chdir(tmp_path)
    for place, site in enumerate(("lyon", "pau")):
        rng = np.random.default_rng(place)
        ill = rng.random(30) > 0.5
        table = {"age": rng.normal(50 + 5 * place, 10, 30) + 9 * ill, "ward": rng.integers(0, 3, 30)}
        pd.DataFrame({**table, "outcome": np.where(ill, "ill", "well")}).to_csv(f"{site}.csv", index=False)
    yield tmp_path / "clinics"
    bring_down(Folder(tmp_path / "clinics"))


@pytest.mark.federation
@pytest.mark.timeout(900)
def test_one_machine(clinics: Path) -> None:
    asked = commands("Your own tables, on one machine first")
    assert [words[0] for words in asked] == ["up", "run", "status", "down"]
    for words in asked:
        said = command(*words, *(FEW if words[0] == "run" else ()))
        if words[0] == "run":
            assert re.search(r"lyon .* pau ", " ".join(said.split()))
    assert (clinics / "runs" / "scaffold-s0" / "summary.json").is_file()


@pytest.mark.federation
@pytest.mark.timeout(900)
def test_several_machines(clinics: Path, tmp_path: Path) -> None:
    """Each site in a folder of its own; the server's name is this machine's."""
    port = str(free_port())
    nodes: dict[str, subprocess.Popen[bytes]] = {}

    def both(words: list[str]) -> None:
        """A command of one site at the other one too."""
        command(*words)
        command(*(word.replace("lyon", "pau") for word in words))

    def start(site: str) -> None:
        place = tmp_path / site
        for file in (clinics / "server" / "ca.pem", tmp_path / "schema.json", tmp_path / f"{site}.csv"):
            shutil.copy(file, place)
        (said,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, flags=re.M | re.S)
        text = said.replace("fl.example.org:9092", f"127.0.0.1:{port}").replace("lyon", site)
        (place / "node.toml").write_text(text)
        words = [sys.executable, "-m", "accord", "federation", "node", str(place / "node.toml")]
        with (tmp_path / f"{site}.said").open("wb") as said_by_it:
            nodes[site] = subprocess.Popen(words, env=surroundings(tmp_path), stdout=said_by_it)

    try:
        for words in commands("On several machines"):
            match words[0], words[-1]:
                case "keys", "lyon":
                    both(words)
                case "summary", _:
                    both(words)
                    for site in ("lyon", "pau"):  # the owners send them
                        shutil.copy(tmp_path / site / f"{site}.json", tmp_path)
                        shutil.copy(tmp_path / site / "node.key.pub", tmp_path / f"{site}.pub")
                case "admit", _:
                    both(words)
                case "server", _:
                    command(*(port if word == "9092" else word for word in words), "--host", "127.0.0.1")
                case "node", "--check":
                    start("lyon")
                    start("pau")
                    assert "lyon: 24 training and 6 test samples" in command(*words)
                case "node", _:
                    for site in ("lyon", "pau"):
                        there = tmp_path / f"{site}.said"
                        assert waited(lambda file=there: b"the node is in" in file.read_bytes(), 180), there.read_text()
                case "run", _:
                    said = command(*("2" if word == "20" else word for word in words), *FEW)
                    assert re.search(r"lyon .* pau ", " ".join(said.split()))
                case _:
                    command(*words)
    finally:
        for node in nodes.values():
            node.send_signal(signal.SIGTERM)  # as Ctrl-C, which background processes do not hear
        ends = [node.wait(timeout=60) for node in nodes.values()]
    assert ends == [143, 143]
    assert (clinics / "runs" / "fedavg-s0" / "model" / "model.safetensors").is_file()
    assert not os.path.exists(tmp_path / "lyon" / "nodes")


def test_all_commands_are_there() -> None:
    asked = [words for section in re.findall(r"^## (.*)$", PAGE, flags=re.M) for words in commands(section)]
    assert {words[0] for words in asked} == {
        *("demo", "up", "run", "status", "down", "keys", "summary", "admit", "expel", "schema", "server", "node")
    }
