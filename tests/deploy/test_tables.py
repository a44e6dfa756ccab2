"""From a table to answers about raw rows: in Python, at the command line, and where nothing of the training is."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import accord
from accord.cli.app import app
from accord.data.inputs import Inputs
from accord.deploy.answers import Answers
from accord.deploy.samples import answers_table, read_samples
from accord.errors import ConfigError, DataError
from support.leaving import TEST, finished

SMALL = (
    *("rounds=2", "partition.name=natural", "partition.clients=3", "partition.test=natural", "clients.fraction=1.0"),
    *("executor=sequential", "model.name=mlp", "model.hidden=[4]", "algorithm.name=ditto", "targets=[]"),
)
FRESH = """
import json, sys
import accord
model = accord.load(sys.argv[1], client=sys.argv[2])
rows = json.loads(sys.stdin.read())
print(json.dumps(model.predict(rows)))
training = ("engine", "algorithms", "executors", "config", "parts", "measures", "client", "aggregate", "study")
print([name for name in sys.modules if name.startswith("accord.") and name.split(".")[1] in training])
"""


def patients(count: int = 90) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    age, smoker = rng.integers(20, 90, count), rng.random(count) < 0.4
    ward = np.array(["A", "B", "C"])[rng.integers(0, 3, count)]
    ill = (age > 55) ^ (ward == "C")
    site = np.array(["Bern", "Lyon", "Turin"])[np.arange(count) % 3]
    return pd.DataFrame(
        {"age": age, "smoker": smoker, "ward": ward, "hospital": site, "outcome": np.where(ill, "ill", "well")}
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> accord.Outcome:
    data = accord.from_table(patients(), "outcome", "hospital", categorical=["ward"])
    out = tmp_path_factory.mktemp("runs")
    return accord.run(accord.load_config(None, [*SMALL, f"out={out}"]), data=data)


def by_hand(model: Any, rows: pd.DataFrame) -> list[str]:
    """Ages and truths standardised, wards as three places: what the network was trained on."""
    places = np.stack([rows["age"], rows["smoker"], *(rows["ward"] == w for w in "ABC")], 1).astype(float)
    x = torch.tensor((places - model.inputs.mean) / model.inputs.std).float()
    return [model.classes[c] for c in model.network(x).argmax(1).tolist()]


def test_rows_in_any_form(run: accord.Outcome) -> None:
    rows = patients().iloc[:12]
    model = accord.load(run.folder)
    wanted = by_hand(model, rows)
    assert model.predict(rows) == wanted
    assert set(wanted) <= {"ill", "well"}
    assert model.predict(rows.to_dict("records")) == wanted
    assert model.predict(rows[["ward", "age", "smoker"]]) == wanted, "columns go by name"
    assert accord.predict(run.folder, rows, client="Lyon") == by_hand(accord.load(run.folder, "Lyon"), rows)
    with pytest.raises(DataError, match="age"):
        model.predict(rows.drop(columns="age"))
    with pytest.raises(DataError, match=r"'D'"):
        model.predict(rows.assign(ward="D"))


def test_without_what_trained_it(run: accord.Outcome) -> None:
    rows = patients().iloc[:5]
    process = subprocess.run(
        [sys.executable, "-c", FRESH, str(run.folder), "Lyon"],
        input=rows[["age", "smoker", "ward"]].to_json(orient="records"),
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path), "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert process.returncode == 0, process.stderr
    answers, training = process.stdout.splitlines()
    assert eval(answers) == accord.predict(run.folder, rows, client="Lyon")
    assert training == "[]"


def said(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_predict_at_the_command_line(run: accord.Outcome, tmp_path: Path) -> None:
    rows = patients().iloc[:7]
    rows.to_csv(tmp_path / "new.csv", index=False)
    rows.drop(columns=["hospital", "outcome"]).to_parquet(tmp_path / "new.parquet")
    shown = said("predict", run.folder, tmp_path / "new.csv")
    assert shown.exit_code == 0
    assert "note: columns that the model does not read: 'hospital', 'outcome'" in shown.stderr
    lines = list(csv.DictReader(io.StringIO(shown.stdout)))
    model = accord.load(run.folder)
    assert [line["predicted"] for line in lines] == model.predict(rows)
    wanted = model.probabilities(rows)[:, model.classes.index("ill")].tolist()
    assert [float(line["p(ill)"]) for line in lines] == pytest.approx(wanted, rel=1e-4)
    written = said("predict", run.folder, tmp_path / "new.parquet", "--client", "Turin", "--out", tmp_path / "out.csv")
    assert written.exit_code == 0
    assert written.stderr == ""
    found = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert [line["predicted"] for line in found] == accord.predict(run.folder, rows, client="Turin")
    rows.drop(columns="age").to_csv(tmp_path / "less.csv", index=False)
    for words, code, match in (
        ((tmp_path / "less.csv",), 1, "there is no column 'age'"),
        ((tmp_path / "none.csv",), 1, "there is no file"),
        ((tmp_path / "new.csv", "--client", "Paris"), 2, "no model of the client 'Paris'"),
        ((tmp_path / "new.csv", "--out", tmp_path / "a" / "b.csv"), 1, "cannot write"),
    ):
        wrong = said("predict", run.folder, *words)
        assert wrong.exit_code == code
        assert match in " ".join(wrong.stderr.split())


def test_a_grey_picture_is_shown_thrice_to_a_network_of_coloured_ones(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.array([[10, 20], [30, 40]], np.uint8)).save(tmp_path / "grey.png")
    image.fromarray(np.full((2, 2, 3), (1, 2, 3), np.uint8)).save(tmp_path / "tinted.png")
    grey, tinted = (
        read_samples(tmp_path / name, Inputs("image", (3, 2, 2))).raw for name in ("grey.png", "tinted.png")
    )
    assert grey.tolist() == [3 * [[[10, 20], [30, 40]]]]
    assert tinted[0, :, 0, 0].tolist() == [1, 2, 3]
    assert read_samples(tmp_path / "grey.png", Inputs("image", (1, 2, 2))).raw.shape == (1, 1, 2, 2)


def test_samples_from_arrays_and_images(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    model = accord.load(finished(tmp_path).folder)
    np.save(tmp_path / "x.npy", TEST[0][:5])
    (tmp_path / "some").mkdir()
    for number, picture in enumerate(TEST[0][:5]):
        image.fromarray(picture[0]).save(tmp_path / "some" / f"{number}.png")
    wanted = model.predict(TEST[0][:5])
    for place, names in (("x.npy", ["0", "1", "2", "3", "4"]), ("some", [f"{n}.png" for n in range(5)])):
        lines = list(csv.DictReader(io.StringIO(answers_table(model, read_samples(tmp_path / place, model.inputs)))))
        assert [line["sample"] for line in lines] == names
        assert [line["predicted"] for line in lines] == wanted
    np.save(tmp_path / "bad.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="cannot be read as an array of numbers"):
        read_samples(tmp_path / "bad.npy", model.inputs)
    with pytest.raises(ConfigError, match=r"\.npy file"):
        read_samples(
            tmp_path / "x.csv" if (tmp_path / "x.csv").write_text("a\n1\n") else tmp_path, Inputs("tokens", (4,))
        )


def test_answers_of_every_kind_of_problem() -> None:
    outputs = torch.tensor([[2.0, -1.0, 0.5], [-3.0, -2.0, -1.0]])
    assert Answers("classification", ["a", "b", "c"], 3).words(outputs) == ["a", "c"]
    several = Answers("multilabel", ["a", "b", "c"], 3)
    assert several.words(outputs) == [["a", "c"], []]
    assert several.probabilities(torch.zeros(1, 3)).tolist() == [[0.5, 0.5, 0.5]]
    assert Answers("regression", [], 1).words(torch.tensor([[1.5], [-2.0]])) == [1.5, -2.0]
    assert Answers("regression", ["x", "y"], 2).words(torch.tensor([[1.5, 2.0]])) == [[1.5, 2.0]]
    with pytest.raises(ConfigError, match="no probabilities"):
        Answers("regression", [], 1).probabilities(outputs)
    assert Answers("tokens", [], 3).words(outputs[None]) == [["0", "2"]]
    assert Answers("classification", [], 2).probabilities(torch.zeros(1, 2)).tolist() == [[0.5, 0.5]]
