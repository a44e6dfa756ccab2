"""What is asked of one way to bring data reaches the one it is built on, all of it and under the right name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from accord.data.files.collection import Places
from accord.data.own import arrays, folder, huggingface, named_table, sequences
from accord.data.own.schema import agree
from accord.data.own.summaries import summarise
from accord.data.own.table import from_table
from accord.data.public import load_dataset, registry
from accord.data.public.registry import DATASETS

ASKED: dict[str, Any] = {"task": "regression", "test_fraction": 0.4, "seed": 7}


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `from_arrays` is asked for, whoever asks it."""
    heard: list[Any] = []
    for module in (arrays, huggingface, sequences):
        monkeypatch.setattr(module, "from_arrays", lambda *given, **named: heard.append((given, named)))
    return heard


def test_a_pytorch_data_set(called: list[Any]) -> None:
    pairs = [(torch.full((2,), float(n)), n) for n in range(3)]
    arrays.from_torch(pairs, pairs[:1], ["a", "b", "a"], ["b"], ["x", "y"], "mine", normalise=True, **ASKED)
    (x, y, clients, test, classes, name), named = called[0]
    assert (x[:, 0].tolist(), y.tolist(), clients, classes, name) == (
        *([0.0, 1.0, 2.0], [0, 1, 2], ["a", "b", "a"]),
        *(["x", "y"], "mine"),
    )
    assert (test[0].tolist(), test[1].tolist(), test[2]) == ([[0.0, 0.0]], [0], ["b"])
    assert named == {**ASKED, "normalise": True}
    arrays.from_torch(pairs)
    assert called[1][0][2:] == (None, None, None, "own")
    assert called[1][1] == {"task": "auto", "normalise": False, "test_fraction": 0.2, "seed": 0}


def test_a_hugging_face_data_set(called: list[Any]) -> None:
    class Table:
        def __init__(self, **columns: list[Any]) -> None:
            self.columns = columns
            self.column_names = list(columns)

        def __len__(self) -> int:
            return len(self.columns["out"])

        def __getitem__(self, name: str) -> list[Any]:
            return self.columns[name]

        def __iter__(self) -> Any:
            return (dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True))

    train = Table(into=[[1.0], [2.0]], out=[0, 1], whose=["n", "s"])
    test = Table(into=[[3.0]], out=[1], whose=["s"])
    huggingface.from_huggingface(train, "into", "out", "whose", test, "mine", classes=2, normalise=True, **ASKED)
    (x, y, clients, other, classes, name), named = called[0]
    assert (x.tolist(), y.tolist(), clients, classes, name) == ([[1.0], [2.0]], [0, 1], ["n", "s"], 2, "mine")
    assert (other[0].tolist(), other[1].tolist(), other[2]) == ([[3.0]], [1], ["s"])
    assert named == {**ASKED, "normalise": True}


def test_sequences(called: list[Any]) -> None:
    sequences.from_sequences([[1, 2], [3]], [0, 1], ["a", "b"], ([[4]], [1], ["a"]), 5, "mine", length=1, **ASKED)
    (x, y, clients, test, classes, name), named = called[0]
    assert (x["tokens"].tolist(), x["mask"].tolist(), y) == ([[1], [3]], [[1.0], [1.0]], [0, 1])
    assert (clients, classes, name, named) == (["a", "b"], 5, "mine", ASKED)
    assert (test[0]["tokens"].tolist(), test[1], test[2]) == ([[4]], [1], ["a"])


def test_a_table_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []
    monkeypatch.setattr(named_table, "from_table", lambda *given, **named: heard.append((given, named)))
    for name in ("a.csv", "b.csv", "c.json"):
        (tmp_path / name).write_text("")
    places = Places((tmp_path,))
    DATASETS["table"](places, path="a.csv", label="y")
    plain = {"features": None, "categorical": (), "test": None, "task": "auto", "missing": "error", "normalise": True}
    plain |= {"test_fraction": 0.2, "seed": 0, "separator": None, "schema": None}
    assert heard[0] == ((tmp_path / "a.csv", "y", None), plain)
    said: dict[str, Any] = {"features": ("u", "v"), "categorical": ("v",), "missing": "drop", "separator": ";"}
    said |= {"normalise": False, "test_fraction": 0.4}
    files = {"path": "a.csv", "test": "b.csv", "schema": "c.json"}
    DATASETS["table"](places, task="regression", label="y", client="w", split_seed=7, **files, **said)
    found = {"test": tmp_path / "b.csv", "schema": tmp_path / "c.json", "task": "regression", "seed": 7}
    assert heard[1] == ((tmp_path / "a.csv", "y", "w"), {**said, **found})


def test_a_folder_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []
    monkeypatch.setattr(folder, "from_folder", lambda *given, **named: heard.append((given, named)))
    (tmp_path / "pictures").mkdir()
    DATASETS["folder"](Places((tmp_path,)), path="pictures")
    said = {"image_size": 9, "test_fraction": 0.4, "normalise": False}
    DATASETS["folder"](Places((tmp_path,)), path="pictures", split_seed=7, **said)
    plain = {"image_size": None, "test_fraction": 0.2, "seed": 0, "normalise": True}
    assert heard == [((tmp_path / "pictures",), plain), ((tmp_path / "pictures",), {**said, "seed": 7})]


def test_a_data_set_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []

    def plain(places: Places, *, normalise: bool = True) -> None:
        heard.append((places, normalise))

    def read_in_several_ways(places: Places, task: str = "auto", *, path: str) -> None:
        heard.append((places, task, path))

    monkeypatch.setattr(registry, "DATASETS", {"plain": plain, "several": read_in_several_ways})
    monkeypatch.setenv("ACCORD_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    progress: Any = print
    load_dataset("plain", tmp_path / "here", download=False, progress=progress, task="regression", normalise=False)
    load_dataset("several", task="regression", path=Path("a.csv"))
    assert heard[0] == (Places((tmp_path / "here", tmp_path / "accord"), False, progress), False)
    assert heard[1] == (Places((tmp_path / "accord",), True, None), "regression", "a.csv")


def test_a_summary_is_of_the_rows_that_are_trained_on() -> None:
    """With the same share and seed; another seed trains on others."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=40), "b": [None, 1.0] * 20, "y": ["no", "yes"] * 20})
    means = set()
    for seed, share in ((0, 0.2), (3, 0.2), (3, 0.5)):
        how: dict[str, Any] = {"seed": seed, "test_fraction": share, "features": ["a"]}
        schema = agree({"one": summarise(table, "y", **how)})
        rows = from_table(table, "y", normalise=False, **how).train.x[:, 0].double()
        assert schema.inputs.mean[0] == pytest.approx(float(rows.mean()), rel=1e-6)
        assert schema.inputs.std[0] == pytest.approx(float(rows.std(correction=0)), rel=1e-6)
        means.add(schema.inputs.mean[0])
    assert len(means) == 3
    some = summarise(table, "y", missing="drop", task="classification", categorical=["b"])
    assert [(column.name, column.kind) for column in some.columns] == [("a", "number"), ("b", "category")]
    assert some.columns[1].values == ("1",)
