"""`accord diagnose`: what it takes, what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from accord.cli.app import app
from accord.cli.own_data import own_data
from accord.config import load_config

SMALL = ["--set", "data.limit=600", "--set", "partition.clients=5"]


def said(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["diagnose", *words])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    """Lyon's machine measures higher, Pau has more who are ill."""
    rng = np.random.default_rng(1)
    parts = []
    for name, count, higher, ill in (("Aix", 300, 0.0, 0.3), ("Lyon", 300, 3.0, 0.3), ("Pau", 240, 0.0, 0.8)):
        is_ill = rng.random(count) < ill
        columns = {"marker": rng.normal(2.0 * is_ill, 1.0) + higher, "age": rng.normal(60 + 5 * is_ill, 10)}
        parts.append(pd.DataFrame({**columns, "diagnosis": np.where(is_ill, "ill", "well"), "hospital": name}))
    pd.concat(parts).to_csv(tmp_path / "patients.csv", index=False)
    return tmp_path / "patients.csv"


def test_own_data_with_a_page_and_a_file(hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    page, record = tmp_path / "d.html", tmp_path / "d.json"
    own = ["--label", "diagnosis", "--client", "hospital", "--quick"]
    text = said(str(hospitals), *own, "--page", str(page), "--json", str(record))
    words = [line for line in text.splitlines() if str(tmp_path) not in line]
    assert max(map(len, words)) <= 60
    told = json.loads(record.read_text())
    grave = {one["name"]: one["severity"] for one in told["findings"]}
    assert grave["features"] == "strong"
    assert grave["labels"] == "mild"
    assert grave["duplicates"] == "none"
    assert grave["concept"] in ("none", "unknown")
    assert "Lyon" in next(one["clients"] for one in told["findings"] if one["name"] == "features")
    assert not told["suggestion"]["fedavg_is_enough"]
    assert told["command"].startswith("accord compare --data ")
    assert "<script" in page.read_text()
    assert str(record) in text
    assert str(page) in text


def test_the_suggested_command_can_be_given(hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = tmp_path / "d.json"
    said(str(hospitals), "--label", "diagnosis", "--client", "hospital", "--quick", "--json", str(record))
    words = shlex.split(json.loads(record.read_text())["command"])
    sets = own_data(data=words[words.index("--data") + 1])
    sets += [words[n + 1] for n, word in enumerate(words) if word == "--set"]
    methods = words[words.index("--algorithms") + 1].split(",")
    for method in methods:
        load_config(sets=[*sets, f"algorithm.name={method}"])
    assert methods[0] == "fedavg"


def test_a_configuration_and_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[partition]\nname = "iid"\nclients = 5\n[data]\nlimit = 600\n')
    text = said(str(file), "--quick")
    assert "FedAvg, tuned, is enough" in text
    assert "Client drift" not in text
    assert said(*SMALL, "--quick", "--set", "partition.alpha=0.1").count("STRONG  Label skew") == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nothing.csv", "--label", "y"], "nothing.csv"),
        (["no-such-data"], "there is no such file or folder, and no data set of that name"),
        (["--set", "partition.alpha=-1"], "partition.alpha"),
        (["mnist5k", "--data", "mnist5k"], "the data is named twice"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(words: list[str], expected: str) -> None:
    done = CliRunner().invoke(app, ["diagnose", *words, "--quick"])
    assert done.exit_code in (1, 2)
    assert "Traceback" not in done.output
    told = " ".join(done.output.split())
    assert expected in told


def test_a_folder_is_no_file_for_a_page(tmp_path: Path) -> None:
    text = " ".join(said(*SMALL, "--page", str(tmp_path), code=2).split())
    assert "is a folder: name a file" in text
