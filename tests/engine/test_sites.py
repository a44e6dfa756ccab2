"""What a run tells of each site: by hand from its data, in its file, and after a stop."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import accord
from accord.data.federated import FederatedData, Groups, Pool
from accord.engine import sites as sites_file
from accord.engine.sites import read_sites, write_division, write_sites
from accord.errors import DataError, RunError
from accord.measures.sites import Sites, sites_of
from support.wards import SITES, linear, run, wards


def federation(labels: list[list[int]], num_classes: int, **others: Any) -> FederatedData:
    """Clients with these training labels."""
    flat = [label for client in labels for label in client]
    pool = Pool(torch.zeros(len(flat), 1), torch.tensor(flat))
    train = Groups.of(np.split(np.arange(len(flat)), np.cumsum([len(c) for c in labels])[:-1]))
    nothing = Groups.of([[]] * len(labels))
    return FederatedData("x", pool, pool, num_classes, train, nothing, nothing, **others)


def test_two_classes_tell_of_the_second() -> None:
    sites = sites_of(
        federation([[0, 1, 0, 0], [1], []], 2, classes=("no", "yes")), {"accuracy": np.array([1, np.nan, 0])}
    )
    assert sites.columns == {
        "site": ["0", "1", "2"],
        "client": [0, 1, 2],
        "samples": [4, 1, 0],
        "test_samples": [0, 0, 0],
        "class": ["yes", "yes", ""],
        "class_share": [0.25, 1.0, None],
        "accuracy": [1.0, None, 0.0],
    }
    assert sites.rows()[1]["site"] == "1"


def test_the_classes_of_every_site_are_counted_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = federation([[0, 2, 0], [], [2]], 3)
    mixed = replace(data, train=Groups.of([[3, 1], [], [0, 2]]))  # labels 2, 2 and 0, 0
    for given, counts in ((data, [[2, 0, 1], [0, 0, 0], [0, 0, 1]]), (mixed, [[0, 0, 2], [0, 0, 0], [2, 0, 0]])):
        write_division(tmp_path, given)
        found = json.loads((tmp_path / "division.json").read_text())
        assert found == {"classes": ["0", "1", "2"], "counts": counts}
    write_division(tmp_path, replace(data, classes=("a", "b", "c")))
    assert json.loads((tmp_path / "division.json").read_text())["classes"] == ["a", "b", "c"]
    write_division(tmp_path, replace(data, classes=("a", "b")))
    assert json.loads((tmp_path / "division.json").read_text())["classes"] == ["0", "1", "2"], "not the names of these"
    (tmp_path / "division.json").unlink()
    write_division(tmp_path, replace(data, problem="regression"))
    monkeypatch.setattr(sites_file, "LARGEST", 8)
    write_division(tmp_path, data)
    assert not (tmp_path / "division.json").exists(), "no classes, or too many cells"
    monkeypatch.setattr(sites_file, "LARGEST", 9)
    write_division(tmp_path, data)
    assert (tmp_path / "division.json").exists()


def test_more_classes_tell_of_the_most_frequent_and_of_equals_of_the_first() -> None:
    sites = sites_of(federation([[2, 0, 2], [1, 2, 2, 1], [], [3]], 4, names=("a", "b", "c", "d")), {})
    assert sites.columns["site"] == ["a", "b", "c", "d"]
    assert sites.columns["class"] == ["2", "1", "", "3"]
    assert sites.columns["class_share"] == [pytest.approx(2 / 3), 0.5, None, 1.0]


def test_a_run_writes_them_and_they_are_read_as_they_were(tmp_path: Path) -> None:
    data = wards()
    outcome = run(tmp_path, "algorithm.name=ditto", "evaluate.brier=true", data=data)
    rows = outcome.sites()
    with open(outcome.folder / "sites.csv", newline="") as file:
        plain = list(csv.DictReader(file))
    assert [row["site"] for row in plain] == [row["site"] for row in rows] == list(SITES)
    assert [row["samples"] for row in rows] == [4, 16, 20, 8]
    assert [row["test_samples"] for row in rows] == [8, 10, 12, 6]
    ill = [float((data.train_pool.y[torch.as_tensor(data.train[k])] == 1).double().mean()) for k in range(4)]
    assert [row["class_share"] for row in rows] == [pytest.approx(share) for share in ill]
    assert {row["class"] for row in rows} == {"ill"}
    summary = outcome.summary
    for name, spread in (
        ("accuracy", "client_accuracy"),
        ("personal_accuracy", "personal_accuracy"),
        ("brier", "client_brier"),
    ):
        values = [row[name] for row in rows]
        assert summary[spread]["mean"] == pytest.approx(np.mean(values))
        assert summary[spread]["worst"] == (max if name == "brier" else min)(values)


def test_a_finished_run_that_is_returned_as_it_is_has_them(tmp_path: Path) -> None:
    outcome = run(tmp_path)
    again = accord.resume(outcome.folder, data=wards(), model=linear(2))
    assert again.sites() == outcome.sites() != []
    (outcome.folder / "summary.json").unlink()  # it was killed between the last round and the end
    before = outcome.sites()
    (outcome.folder / "sites.csv").unlink()
    assert accord.resume(outcome.folder, data=wards(), model=linear(2)).sites() == before


def test_nothing_is_written_where_nothing_was_measured_at_the_clients(tmp_path: Path) -> None:
    outcome = run(tmp_path, "evaluate.clients=false")
    assert outcome.sites() == []
    assert not (outcome.folder / "sites.csv").exists()


def test_names_and_numbers_survive_the_file(tmp_path: Path) -> None:
    strange = ['a,b "c"', "two\nlines", "=1+1", "é"]
    sites = sites_of(replace(wards(), names=tuple(strange)), {"x": np.array([0.1, 1 / 3, np.nan, 1e-300])})
    write_sites(tmp_path, sites)
    assert read_sites(tmp_path) == sites
    assert read_sites(tmp_path / "elsewhere") is None
    write_sites(tmp_path, Sites({name: [] for name in sites.columns}))
    assert len(read_sites(tmp_path) or ()) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n",
        "site,client,samples,test_samples,class\nx,1,2\n",
        "site,client,samples,test_samples,class\nx,y,2,3,c\n",
        "\x00",
    ],
)
def test_a_damaged_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "sites.csv").write_text(text)
    with pytest.raises(DataError, match=r"cannot read .*sites\.csv"):
        read_sites(tmp_path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "sites.csv").symlink_to(tmp_path / "other")
    with pytest.raises(RunError, match="symbolic link"):
        read_sites(tmp_path)
