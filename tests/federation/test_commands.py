"""`accord federation ...`: every refusal is a sentence that says what to do, before anything is started."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from accord.cli.app import app
from accord.config import load_config
from accord.federation.folder import Folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for site in ("aix", "pau"):
        ill = rng.random(20) > 0.5
        pd.DataFrame({"age": 40 + ill, "outcome": np.where(ill, "ill", "well")}).to_csv(f"{site}.csv", index=False)


def said(*words: str, code: int = 2) -> str:
    done = CliRunner().invoke(app, ["federation", *words])
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return " ".join(done.output.split())


@pytest.mark.parametrize(
    "command", ["up", "run", "status", "down", "demo", "keys", "admit", "expel", "server", "node", "summary", "schema"]
)
def test_every_command_explains_itself(command: str) -> None:
    assert len(said(command, "--help", code=0)) > 200


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["up"], "there is no federation in federation yet: name its sites and their files, --data lyon=lyon.csv"),
        (["up", "--data", "aix.csv"], "--data 'aix.csv': must be SITE=PATH, as lyon=lyon.csv"),
        (["up", "--data", "aix=no.csv", "--label", "outcome"], "there is no"),
        (["up", "--data", "aix=aix.csv"], "say which column is to be predicted, --label COLUMN"),
        (["up", "--data", "a=aix.csv", "--data", "a=pau.csv", "--label", "outcome"], "names the site 'a' twice"),
        (["up", "--data", "a=aix.csv", "--nodes", "2"], "--data and --nodes: choose one of them"),
        (["up", "--data", "../a=aix.csv", "--label", "outcome"], "cannot name a site"),
        (["up", "--nodes", "2", "--set", "partition.alpa=1"], "partition.alpa"),
        (["run"], "no federation is up in"),
        (["run", "--algorithm", "fedagv"], "Did you mean 'fedavg'?"),
        (["run", "--resume", "runs/x", "--rounds", "3"], "give no other settings"),
        (["status"], "there is no federation in federation"),
        (["down"], "there is no federation in federation"),
        (["keys", "--host", "two words"], "is no host: give a name such as fl.example.org or an IP address"),
        (["keys", "--host", "a.org", "--node", "pau"], "make them apart"),
        (
            ["admit", "pau", "pau.pub"],
            "there is no server in federation: accord federation keys",
        ),
        (["expel", "pau"], "no site 'pau' was let in to"),
        (["server"], "accord federation keys federation --host NAME"),
        (["node", "node.toml"], "node.toml"),
        (["schema", "aix.csv"], "cannot be read as JSON"),
        (["summary", "aix.csv", "--label", "outcom"], "Did you mean 'outcome'?"),
    ],
)
def test_refusals(words: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["federation", *words])
    assert done.exit_code in (1, 2)
    assert message in " ".join(done.output.split())
    assert "Traceback" not in done.output
    assert not Path("federation", "federation.json").exists(), "nothing was started"


@pytest.mark.parametrize("words", [["up", "--nodes", "2"], ["run"], ["demo"], ["keys"], ["server"], ["node", "n.toml"]])
def test_what_is_missing_is_named(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "flwr" else find(name, *more))
    assert "pip install 'accord-fl[flower]'" in said(*words)
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    assert "needs Python 3.11 or newer" in said(*words)


def test_keys_for_several_machines() -> None:
    """As the page has it: the server's, a node's, and the node is let in."""
    assert "goes to every node" in said("keys", "server", "--host", "fl.example.org", code=0)
    assert "exists already and is not written over" in said("keys", "server")
    assert "nobody else may have it" in said("keys", "lyon", "--node", "lyon", code=0)
    assert "exists already" in said("keys", "lyon", "--node", "lyon")
    assert "from the server's next start on" in said("admit", "lyon", "lyon/node.key.pub", "-f", "server", code=0)
    assert (Folder(Path("server")).admitted / "lyon.pub").read_text() == Path("lyon/node.key.pub").read_text()
    assert {path.name for path in Path("lyon").iterdir()} == {"node.key", "node.key.pub"}


def test_a_schema_of_two_sites_and_a_node_that_says_what_it_agrees_to() -> None:
    for site in ("aix", "pau"):
        assert "read it, then send it" in said(
            "summary", f"{site}.csv", "--label", "outcome", "--out", f"{site}.json", code=0
        )
    assert "predicts outcome from age" in said("schema", "aix.json", "pau.json", code=0)
    assert json.loads(Path("schema.json").read_text())["classes"] == ["ill", "well"]
    said("keys", "server", code=0)
    said("keys", ".", "--node", "pau", code=0)
    lines = [
        'site = "pau"',
        'allow = ["fedmix.means"]',
        "clip = 2.0",
        "[data]",
        'path = "pau.csv"',
        'label = "outcome"',
    ]
    lines += ['schema = "schema.json"', "[connection]", 'server = "127.0.0.1:9"', 'ca = "server/server/ca.pem"']
    Path("node.toml").write_text("\n".join([*lines, 'key = "node.key"']))
    told = said("node", "node.toml", "--check", code=0)
    assert "pau: 16 training and 4 test samples of pau" in told
    assert "by name: fedmix.means" in told
    assert "clipped to 2, noise 0" in told


def test_the_example_is_the_app_that_is_run() -> None:
    root = Path(__file__).resolve().parent.parent.parent
    example, own = root / "examples" / "flower", root / "src" / "accord" / "federation" / "app"
    for name in ("accord_app.py", "pyproject.toml"):
        assert (example / name).read_text() == (own / name).read_text()
    assert load_config(example / "run.toml").algorithm.name == "scaffold"
