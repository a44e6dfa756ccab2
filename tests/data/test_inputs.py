"""How raw samples become what a network sees, and what is refused of a file that says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import accord
from accord.data.columns import Column, matrix
from accord.data.inputs import Inputs
from accord.errors import DataError

TABLE = Inputs(
    "table",
    (5,),
    (2.0, 0.0, 0.0, 0.0, 0.0),
    (4.0, 1.0, 1.0, 1.0, 1.0),
    (Column("age", "number", fill=6.0), Column("smokes", "bool"), Column("ward", "category", ("east", "west", "7"))),
)
ROWS = [{"age": 10, "smokes": True, "ward": "west"}, {"age": None, "smokes": 0, "ward": 7.0}]
SEEN = [[2.0, 1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0, 1.0]]  # (10 - 2) / 4, and (6 - 2) / 4 for the missing one


@pytest.mark.parametrize(
    "raw",
    [
        ROWS,
        pd.DataFrame(ROWS),
        pd.DataFrame(ROWS)[["ward", "age", "smokes"]].assign(name="not looked at"),
        {name: [row[name] for row in ROWS] for name in ROWS[0]},
        np.array([list(row.values()) for row in ROWS], dtype=object),
    ],
)
def test_rows_of_every_form_become_the_same_numbers(raw: Any) -> None:
    assert TABLE.tensor(raw).tolist() == SEEN
    assert TABLE.tensor(raw).dtype == torch.get_default_dtype()


def test_numbers_may_be_spelt_as_a_reader_without_types_gives_them() -> None:
    rows = [{"age": "10", "smokes": 1, "ward": "west"}, {"age": "", "smokes": 0, "ward": "7"}]
    assert TABLE.tensor(rows).tolist() == SEEN


def test_a_single_row_is_a_mapping() -> None:
    assert TABLE.tensor(ROWS[0]).tolist() == SEEN[:1]


def test_pandas_own_kinds_of_columns() -> None:
    frame = pd.DataFrame(
        {
            "age": pd.array([10, None], dtype="Int64"),
            "smokes": pd.array([True, False], dtype="boolean"),
            "ward": pd.Categorical(["west", "7"], categories=["7", "west", "north"]),
        }
    )
    assert TABLE.tensor(frame).tolist() == SEEN


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": "old"}, "'age' must hold numbers, and row 0 has 'old'"),
        ({"age": float("inf")}, "'age' has 1 infinite values"),
        ({"age": 10**400}, "'age' has 1 infinite values"),
        ({"smokes": 2}, "'smokes' is true or false, and one of its values is 2"),
        ({"smokes": None}, "'smokes' has 1 missing values, first in row 0"),
        (
            {"ward": "north"},
            "'ward' has values it did not have when the network learnt: 'north'. Known: 'east', 'west'",
        ),
        ({"ward": float("nan")}, "'ward' has 1 missing values"),
        ({"ward": "x" * 5000}, r"'x+\.\.\.'"),
    ],
)
def test_rows_that_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        TABLE.tensor([ROWS[0] | change])
    assert len(str(error.value)) < 400


def test_columns_that_are_not_there() -> None:
    with pytest.raises(DataError, match=r"no column 'age'\. Did you mean 'agee'"):
        TABLE.tensor([{"agee": 1, "smokes": 1, "ward": "east"}])
    with pytest.raises(DataError, match=r"must be \[rows, 3\], got shape \(2, 2\)"):
        TABLE.tensor([[1, 2], [3, 4]])
    with pytest.raises(DataError, match="same name: 'age'"):
        TABLE.tensor(pd.DataFrame([[1, 1, 0, "east"]], columns=["age", "age", "smokes", "ward"]))
    with pytest.raises(DataError, match="differ in length"):
        TABLE.tensor({"age": [1, 2], "smokes": [1], "ward": ["east"]})


def test_every_row_is_looked_at() -> None:
    rows = [ROWS[0] | {"smokes": value} for value in (0, 1, 2, 3)]
    with pytest.raises(DataError, match="'smokes' is true or false, and one of its values is 2"):
        TABLE.tensor(rows)
    with pytest.raises(DataError, match="'ward' has 1 missing values, first in row 1"):
        TABLE.tensor([ROWS[0], ROWS[0] | {"ward": None}])
    with pytest.raises(DataError, match=r"learnt: 'a', 'b', 'c', 'd', 'e', 'f'\. Known: 'east', 'west', '7'"):
        TABLE.tensor([ROWS[0] | {"ward": ward} for ward in "fbdeac"])
    with pytest.raises(DataError, match="'age' must hold numbers, and row 1 has "):
        TABLE.tensor([ROWS[0], ROWS[0] | {"age": np.complex128(1)}])


def test_true_or_false_may_be_filled() -> None:
    assert Column("smokes", "bool", fill=0.25).encoded([True, None, 0]).tolist() == [[1.0], [0.25], [0.0]]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([], r"must be \[rows, 3\], got shape \(0,\)"),
        ([1, 2, 3], r"must be \[rows, 3\], got shape \(3,\)"),
        (np.zeros((2, 3, 1)), r"must be \[rows, 3\], got shape \(2, 3, 1\)"),
        ([ROWS[0], [1, 2, 3]], "no rectangular array"),
        ([[1, 2, 3], [1, 2]], "no rectangular array"),
        ([ROWS[0], {"age": 1}], "there is no column 'smokes', 'ward'. Columns: 'age'"),
    ],
)
def test_what_is_no_table_of_rows(raw: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        TABLE.tensor(raw)


def test_pictures_arrays_and_tokens() -> None:
    grey = Inputs("image", (1, 1, 2), (0.5,), (0.25,))
    assert grey.tensor(np.array([[[0, 255]]], dtype=np.uint8)).tolist() == [[[[-2.0, 2.0]]]]
    assert Inputs("array", (2,), (1.0, 2.0), (2.0, 4.0)).tensor([[3.0, 2.0]]).tolist() == [[1.0, 0.0]]
    assert Inputs("array", (2,)).tensor([[3, 2]]).tolist() == [[3.0, 2.0]]
    tokens = Inputs("tokens", (3,)).tensor([[3, 1, 2]])
    assert (tokens.dtype, tokens.tolist()) == (torch.int64, [[3, 1, 2]])


def test_the_axis_of_channels_may_be_left_out_of_grey_pictures_only() -> None:
    pixels = np.array([[[0, 51, 102], [153, 204, 255]]], dtype=np.uint8)
    expected = [[[0.0, 0.2, 0.4], [0.6, 0.8, 1.0]]]
    grey = Inputs("image", (1, 2, 3))
    for raw in (pixels, pixels[:, None]):
        np.testing.assert_allclose(grey.tensor(raw).numpy(), [expected], rtol=1e-6)
    assert grey.tensor(pixels[:0]).shape == (0, 1, 2, 3), "none is not too dark"
    assert Inputs("array", (1, 2)).tensor(np.ones((4, 1, 2))).shape == (4, 1, 2)
    assert Inputs("tokens", (1,)).tensor([[3], [4]]).tolist() == [[3], [4]]
    with pytest.raises(DataError, match=r"samples must be \[N, 3, 2, 3\], got shape \(1, 2, 3\)"):
        Inputs("image", (3, 2, 3)).tensor(pixels)


@pytest.mark.parametrize(
    ("inputs", "raw", "message"),
    [
        (Inputs("image", (1, 1, 2)), np.zeros((1, 1, 1, 2)), "pixels must be whole numbers, got dtype float64"),
        (Inputs("image", (1, 1, 2)), [[[0, 256]]], r"0\.\.255, got 0 to 256"),
        (Inputs("image", (1, 1, 2)), [[[-1, 5]]], r"0\.\.255, got -1 to 5"),
        (Inputs("array", (2,)), [[1.0, float("nan")]], "finite numbers"),
        (Inputs("array", (2,)), [[1.0, None]], "finite numbers"),
        (Inputs("array", (2,)), [[1.0, 2.0, 3.0]], r"\[N, 2\], got shape \(1, 3\)$"),
        (Inputs("array", (2,)), 3.0, r"\[N, 2\], got shape \(\)$"),
        (Inputs("array", (2,)), [1.0, 2.0], r"\[N, 2\], got shape \(2,\); one sample: x\[None\]"),
        (Inputs("array", (2,)), [[1.0, 2.0], [1.0]], "no rectangular array"),
        (Inputs("tokens", (2,)), [[1.5, 2.0]], "token ids must be whole numbers"),
    ],
)
def test_samples_that_are_refused(inputs: Inputs, raw: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        inputs.tensor(raw)


def test_they_are_what_a_data_set_gives_its_networks() -> None:
    """Bit for bit: one rule for the samples a network learns from and for those it is asked about."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (20, 3, 4, 4)).astype(np.uint8)
    numbers = rng.normal(size=(20, 3)).astype(np.float32)
    ids = rng.integers(0, 9, (20, 6))
    for raw, normalise in ((pixels, True), (pixels, False), (numbers, True), (ids, False)):
        data = accord.from_arrays(raw, np.arange(20) % 2, test=(raw, np.arange(20) % 2), normalise=normalise)
        assert torch.equal(data.inputs.tensor(raw), data.train.take(np.arange(20))[0])
        divided = accord.federate(data, clients=2, partition="iid")
        assert divided.inputs == data.inputs
        assert Inputs.from_json(json.loads(json.dumps(data.inputs.to_json()))) == data.inputs


def test_what_is_written_reads_back_the_same() -> None:
    assert Inputs.from_json(json.loads(json.dumps(TABLE.to_json()))) == TABLE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "pickle"}, "must be one of image, array, tokens, table"),
        ({"kind": ["table"]}, "must be one of"),
        ({"more": 1}, "must have the keys"),
        ({"shape": []}, "whole numbers of at least 1"),
        ({"shape": [5.0]}, "whole numbers of at least 1"),
        ({"shape": [True]}, "whole numbers of at least 1"),
        ({"shape": [1 << 40]}, "not too many"),
        ({"shape": [5, 0]}, "whole numbers of at least 1"),
        ({"shape": "5"}, "must be a list"),
        ({"shape": [4]}, "do not fit"),
        ({"mean": [float("nan")] * 5}, "finite numbers"),
        ({"mean": ["0"] * 5}, "finite numbers"),
        ({"mean": [0.0] * 4}, "as many"),
        ({"std": [0.0] * 5}, "above 0"),
        ({"std": [1.0, 1.0, 0.0, 1.0, 1.0]}, "above 0"),
        ({"std": [1.0, 1.0, float("inf"), 1.0, 1.0]}, "finite numbers"),
        ({"kind": "tokens", "columns": []}, "5 means do not fit samples of shape"),
        ({"kind": "array"}, "do not fit array samples"),
        ({"mean": [0.0], "std": [1.0]}, "do not fit samples"),
        ({"columns": []}, "do not fit"),
        ({"columns": [1]}, "a column must have the keys"),
        ({"columns": [{"name": "a", "kind": "number", "values": [], "fill": None}] * 5}, "the same name"),
    ],
)
def test_records_that_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Inputs.from_json(TABLE.to_json() | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "needs a name"),
        ({"kind": "text"}, "kind that is one of number, bool, category"),
        ({"values": ["a"]}, "other columns have none"),
        ({"fill": "mean"}, "fill must be a finite number"),
        ({"fill": True}, "fill must be a finite number"),
        ({"fill": float("nan")}, "fill must be a finite number"),
        ({"fill": float("inf")}, "fill must be a finite number"),
        ({"kind": "category", "values": ["a", 1]}, "different words"),
        ({"kind": "category"}, "a category has values"),
        ({"kind": "category", "values": ["a", "a"]}, "different words"),
        ({"kind": "category", "values": [1]}, "different words"),
        ({"kind": "category", "values": ["a"], "fill": 1.0}, "nothing for a category"),
    ],
)
def test_columns_that_are_refused(change: dict[str, Any], message: str) -> None:
    column = {"name": "a", "kind": "number", "values": [], "fill": None} | change
    record = {"kind": "table", "shape": [1], "mean": [], "std": [], "columns": [column]}
    with pytest.raises(DataError, match=message):
        Inputs.from_json(record)


@pytest.mark.parametrize("record", [None, [], "table", {}, {1: 2}])
def test_what_is_no_record(record: Any) -> None:
    with pytest.raises(DataError, match="must have the keys"):
        Inputs.from_json(record)


def test_they_need_no_code_that_trains() -> None:
    script = "import sys, accord.data.inputs; print(*sys.modules)"
    known = {**os.environ, "PYTHONPATH": str(Path(accord.__file__).parent.parent)}
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=known)
    loaded = shown.stdout.split()
    rooms = {name.split(".")[1] for name in loaded if name.startswith("accord.")}
    assert not rooms & {"engine", "algorithms", "parts", "executors", "measures", "study", "client"}
    assert "pandas" not in loaded


def test_a_mapping_is_one_row_where_all_of_it_is_single_values() -> None:
    age, ward = Column("age", "number"), Column("ward", "category", ("east", "west"))
    assert matrix((age, ward), {"age": 3, "ward": "west"}).tolist() == [[3.0, 0.0, 1.0]]
    rows = {"age": [3, 4], "ward": ["west", "east"]}
    assert matrix((age, ward), rows).tolist() == [[3.0, 0.0, 1.0], [4.0, 1.0, 0.0]]
    with pytest.raises(DataError, match="column 'age' must have one value per row"):
        matrix((age, ward), {"age": 3, "ward": ["west", "east"]})
    with pytest.raises(DataError, match="column 'ward' must have one value per row"):
        matrix((age, ward), {"age": [3, 4], "ward": "west"})
