"""A user's own table or folder from the command line: runs, descriptions, comparisons, and going on later."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from accord.config import load_config

Command = Callable[..., Any]
SITES = ("Aix", "Lyon", "Nice")
OWN = ("--data", "patients.csv", "--label", "outcome", "--client", "hospital")
SMALL = ("--set", "executor=sequential", "--set", "device=cpu", "--set", "model.name=mlp", "--set", "model.hidden=[4]")


def patients(path: Path, shift: float = 0.0) -> None:
    rng = np.random.default_rng(0)
    outcome = rng.integers(0, 2, 90)
    columns = {
        "age": (50 + 10 * outcome + rng.normal(size=90)).round(3) + shift,
        "pulse": rng.normal(70, 5, 90).round(3),
        "ward": np.where(rng.random(90) < 0.5, "east", "west"),
        "hospital": np.repeat(SITES, (20, 50, 20)),
        "outcome": np.where(outcome, "ill", "well"),
    }
    pd.DataFrame(columns).to_csv(path, index=False)


@pytest.fixture
def table(accord: Command, tmp_path: Path) -> Path:
    patients(tmp_path / "patients.csv")
    return tmp_path / "patients.csv"


def test_a_table_from_the_command_line(accord: Command, table: Path, tmp_path: Path) -> None:
    result = accord("run", *OWN, "--categorical", "ward", "--rounds", 2, *SMALL)
    assert result.exit_code == 0, result.stderr
    folder = tmp_path / "runs" / "fedavg-patients-s0"  # the data's name is the run's
    assert result.stdout.splitlines()[-1] == "runs/fedavg-patients-s0"
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["dataset"], summary["client_names"]) == ("patients", list(SITES))
    config = load_config(folder / "config.toml")
    assert (config.partition.name, config.partition.clients, config.partition.test) == ("natural", 3, "natural")
    assert config.data.options["path"] == str(table)
    assert (config.data.options["label"], config.data.options["client"]) == ("outcome", "hospital")


def test_it_is_resumed_from_another_folder_and_with_the_same_bytes_only(
    accord: Command, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ("run", *OWN, "--features", "age,pulse", "--rounds", 2, *SMALL)
    assert accord(*run, "--name", "whole").exit_code == 0
    assert accord(*run, "--name", "stopped").exit_code == 0
    stopped = tmp_path / "runs" / "stopped"
    before = (tmp_path / "runs" / "whole" / "metrics.jsonl").read_bytes()
    monkeypatch.chdir("/")
    for name in ("summary.json", "metrics.jsonl"):  # as if it had been stopped in its first round
        (stopped / name).unlink()
    shutil.rmtree(stopped / "checkpoint")
    assert accord("resume", stopped, "-q").exit_code == 0
    assert (stopped / "metrics.jsonl").read_bytes() == before
    (stopped / "summary.json").unlink()
    patients(table, shift=0.001)
    refused = accord("resume", stopped, "-q")
    assert refused.exit_code == 1
    assert "began with other data" in refused.stderr
    table.unlink()
    assert f"{table} is not there" in accord("resume", stopped, "-q").stderr


def test_data_that_was_moved_is_found_where_the_configuration_says(
    accord: Command, table: Path, tmp_path: Path
) -> None:
    """What is in the files counts, not where they lie."""
    assert accord("run", *OWN, "--features", "age", "--rounds", 1, "--name", "a", *SMALL).exit_code == 0
    config = tmp_path / "runs" / "a" / "config.toml"
    moved = tmp_path / "elsewhere" / "patients.csv"
    moved.parent.mkdir()
    table.rename(moved)
    config.write_text(config.read_text().replace(str(table), str(moved)))
    result = accord("resume", config.parent, "-q")
    assert result.exit_code == 0, result.stderr


def test_a_file_says_it_too(accord: Command, table: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        '[data]\npath = "patients.csv"\nlabel = "outcome"\nclient = "hospital"\nfeatures = ["age", "pulse"]\n'
    )
    result = accord("describe", "mine.toml")
    assert result.exit_code == 0, result.stderr
    assert "patients, partition natural" in result.stdout
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[3:6]] == list(SITES)
    assert [int(line.split()[-1]) for line in lines[3:6]] == [16, 40, 16]
    assert "classes: 0 ill, 1 well" in lines
    assert "smallest client 16 (Aix), median 16, largest 40 (Lyon)" in result.stdout


def test_explanations_are_about_the_users_data(accord: Command, table: Path) -> None:
    result = accord("explain", "fedavg", *OWN, "--features", "age")
    assert result.exit_code == 0, result.stderr
    assert "data patients, 3 clients" in " ".join(result.stdout.split())


def test_a_comparison_knows_the_files_contents(accord: Command, table: Path, tmp_path: Path) -> None:
    compare = (
        "compare",
        "--algorithms",
        "fedavg,local",
        "--seeds",
        "0",
        "--rounds",
        1,
        *OWN,
        "--features",
        "age",
        *SMALL,
    )
    first = accord(*compare, "-q")
    assert first.exit_code == 0, first.stderr
    assert accord(*compare, "-q").stdout == first.stdout, "goes on where it was"
    patients(table, shift=0.001)
    other = accord(*compare, "-q")
    assert other.exit_code == 0, other.stderr
    assert other.stdout != first.stdout, "numbers of other data are not taken for those of these"
    named = accord(*compare, "--name", Path(first.stdout.strip()).name)
    assert named.exit_code == 2
    assert "other data" in named.stderr


def test_folders_of_sites(accord: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for site, count in zip(SITES, (5, 10, 5), strict=True):
        for name in ("cat", "dog"):
            folder = tmp_path / "pictures" / site / name
            folder.mkdir(parents=True)
            for number in range(count):
                Image.fromarray(rng.integers(0, 256, (4, 4), dtype=np.uint8)).save(folder / f"{number}.png")
    result = accord("describe", "--data", "pictures")
    assert result.exit_code == 0, result.stderr
    assert "pictures, partition natural" in result.stdout
    lines = result.stdout.splitlines()
    assert [(line.split()[0], line.split()[-1]) for line in lines[3:6]] == list(
        zip(SITES, ("8", "16", "8"), strict=True)
    )
    assert "classes: 0 cat, 1 dog" in lines
    domains = accord(
        "describe", "--data", "pictures", "--set", "partition.name=domains", "--set", "partition.clients=6"
    )
    assert "partition domains" in domains.stdout, domains.stderr
    flat = accord("describe", "--data", "pictures/Aix", "--set", "partition.clients=2", "--set", "partition.min_size=1")
    assert "Aix, partition dirichlet" in flat.stdout, flat.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--data", "nothing"), 2, "no such file or folder, and no data set of that name"),
        (("--data", "nothing.csv", "--label", "a"), 1, "nothing.csv is not there"),
        (("--data", "patients.csv"), 2, "data.label is required by the dataset table"),
        (("--data", "patients.csv", "--label", "outcom"), 1, "no label column 'outcom'. Did you mean 'outcome'?"),
        ((*OWN,), 1, "columns of text: 'ward'"),
        ((*OWN, "--features", ","), 2, "--features ',': name at least one"),
        ((*OWN, "--task", "guess"), 2, 'task = "guess"'),
        ((*OWN, "--missing", "guess"), 2, "data.missing"),
        ((*OWN, "--features", "age", "--test", "none.csv"), 1, "none.csv is not there"),
        ((*OWN, "--features", "age", "--set", "partition.clients=5"), 2, "names 3 clients: leave their number open"),
        ((*OWN, "--features", "age", "--set", "clients.count=4"), 2, "more than the 3 clients that train"),
        ((*OWN, "--features", "age", "--set", "partition.unseen=3"), 2, "leaves nobody to train"),
        (("--set", "clients.count=50"), 2, "more than the 20 clients that train"),
    ],
)
def test_what_is_refused(
    accord: Command, table: Path, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    result = accord("run", *words)
    assert (result.exit_code, said in " ".join(result.stderr.split())) == (code, True), result.stderr
    assert not (tmp_path / "runs").exists()


def test_data_sets_by_name_are_data_too(accord: Command) -> None:
    result = accord("run", "--data", "mnist5k", "--dry-run")
    assert 'name = "mnist5k"' in result.stdout
