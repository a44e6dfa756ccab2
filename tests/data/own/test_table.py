"""Tables as data sets: frames, CSV and Parquet files, and what is refused until it is said what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import accord
from accord.data.files import tables
from accord.errors import DataError

AGES = [20.0, 40.0, 60.0, 80.0] * 5


def frame(**more: Any) -> pd.DataFrame:
    """Twenty patients of two hospitals, half of each ill."""
    columns = {
        "age": AGES,
        "smokes": [True, False] * 10,
        "hospital": ["Lyon"] * 12 + ["Aix"] * 8,
        "outcome": ["well", "ill"] * 10,
    }
    return pd.DataFrame(columns | more)


def table(given: pd.DataFrame | Path | str | None = None, **options: Any) -> accord.data.Dataset:
    return accord.from_table(frame() if given is None else given, "outcome", "hospital", **options)


def test_a_frame_by_hand() -> None:
    test = frame().iloc[:4]
    data = table(test=test, name="patients")
    assert (data.name, data.classes, data.client_names) == ("patients", ("ill", "well"), ("Aix", "Lyon"))
    assert data.train_clients is not None
    assert data.train_clients.tolist() == [1] * 12 + [0] * 8
    assert data.test_clients is not None
    assert data.test_clients.tolist() == [1] * 4
    assert data.train.y.tolist() == [1, 0] * 10
    # mean 50, deviation sqrt((30^2 + 10^2) / 2) = sqrt(500); what is true or false stays 0 or 1
    expected = torch.tensor(
        [[(age - 50) / 500**0.5, float(smokes)] for age, smokes in zip(AGES, [1, 0] * 10, strict=True)]
    )
    torch.testing.assert_close(data.train.x, expected)
    assert torch.equal(data.inputs.tensor(test), data.test.x)
    assert data.note == ""


def test_moments_are_those_of_the_training_rows() -> None:
    data = table(test=frame(age=[1000.0] * 20))
    assert data.inputs.mean[0] == 50.0
    split = table()
    raw = split.train.x[:, 0] * split.inputs.std[0] + split.inputs.mean[0]
    assert split.inputs.mean[0] == pytest.approx(float(raw.mean()), rel=1e-6)
    assert float(split.train.x[:, 0].mean()) == pytest.approx(0, abs=1e-6)
    plain = table(normalise=False)
    assert set(plain.train.x[:, 0].tolist()) == {20.0, 40.0, 60.0, 80.0}


def test_each_site_keeps_its_share_of_each_class_for_testing() -> None:
    data = table(test_fraction=0.25)
    assert data.test_clients is not None
    assert np.bincount(data.test_clients).tolist() == [2, 3]  # of 8 and 12
    labels = data.test.y.numpy()
    assert np.bincount(labels[data.test_clients == 0]).tolist() == [1, 1]
    again, other = table(test_fraction=0.25), table(test_fraction=0.25, seed=1)
    assert torch.equal(again.test.x, data.test.x)
    assert not torch.equal(other.train.x, data.train.x)


def test_files_give_what_frames_give(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "patients.csv", index=False)
    frame().to_csv(tmp_path / "marked.csv", index=False, encoding="utf-8-sig")  # as Excel writes it
    frame().to_csv(tmp_path / "german.csv", index=False, sep=";")
    frame().to_csv(tmp_path / "tabs.tsv", index=False, sep="\t")
    frame().to_parquet(tmp_path / "patients.parquet")
    expected = table()
    for name, options in (
        *(("patients.csv", {}), ("marked.csv", {}), ("tabs.tsv", {}), ("patients.parquet", {})),
        ("german.csv", {"separator": ";"}),
    ):
        data = table(tmp_path / name, **options)
        assert data.name == Path(name).stem
        assert torch.equal(data.train.x, expected.train.x), name
        assert (data.classes, data.client_names, data.inputs) == (
            expected.classes,
            expected.client_names,
            expected.inputs,
        )
        assert torch.equal(data.test.y, expected.test.y)


def test_sites_of_all_kinds_keep_their_names(tmp_path: Path) -> None:
    cases: list[tuple[Any, tuple[str, ...]]] = [
        ([10] * 12 + [9] * 8, ("9", "10")),
        ([10.0] * 12 + [9.0] * 8, ("9", "10")),  # as pandas has whole numbers that once had gaps
        (pd.Categorical(["b"] * 12 + ["a"] * 8, categories=["c", "b", "a"]), ("a", "b")),
        (pd.array(["b"] * 12 + ["a"] * 8, dtype="string"), ("a", "b")),
    ]
    for column, names in cases:
        assert table(frame(hospital=column)).client_names == names
    frame(hospital=["007"] * 12 + ["010"] * 8).to_csv(tmp_path / "coded.csv", index=False)
    assert table(tmp_path / "coded.csv").client_names == ("007", "010")


def test_labels_of_all_kinds() -> None:
    assert table(frame(outcome=[3, 10] * 10)).classes == ("3", "10")
    assert table(frame(outcome=[1.0, 0.0] * 10)).classes == ("0", "1")
    assert table(frame(outcome=[True, False] * 10)).classes == ("False", "True")
    assert table(frame(outcome=pd.Categorical(["b", "a"] * 10))).classes == ("a", "b")
    many = frame(outcome=np.arange(20) % 10 * 5).assign(outcome=lambda f: f["outcome"] + (f.index >= 10) * 3)
    assert len(table(many).classes) == 20
    assert len(table(frame(outcome=range(20)), task="classification").classes) == 20


def test_amounts(tmp_path: Path) -> None:
    ages = pd.Series(AGES) + np.linspace(0, 1, 20)
    data = table(frame(outcome=ages), test=frame(outcome=range(20)))
    assert (data.problem, data.classes, data.train.y.dtype) == ("regression", ("outcome",), torch.get_default_dtype())
    torch.testing.assert_close(data.train.y, torch.tensor(ages.to_numpy(), dtype=torch.get_default_dtype()))
    assert data.test.y.tolist() == list(range(20))
    assert table(frame(outcome=range(20)), task="regression").problem == "regression"
    split = table(frame(outcome=ages, hospital=["a"] * 20), test_fraction=0.25)
    bounds = np.quantile(ages, [0, 0.2, 0.4, 0.6, 0.8, 1])
    spread, _ = np.histogram(split.test.y, bounds)
    assert spread.tolist() == [1] * 5, "test rows are spread over the amounts"
    frame(outcome=range(100, 120)).to_csv(tmp_path / "a.csv", index=False)
    named = {"path": str(tmp_path / "a.csv"), "label": "outcome", "client": "hospital"}
    assert accord.load_dataset("table", task="regression", **named).train.y.min() >= 100
    assert accord.load_dataset("table", **named).num_classes == 20
    sets = [f"data.{key}={value}" for key, value in named.items()]
    build = accord.Federation.build
    small = ["model.name=mlp", "model.hidden=[2]", "device=cpu", "executor=sequential", "task=regression", *sets]
    assert build(accord.load_config(sets=small)).data.train_pool.y.min() >= 100


def test_categories_have_a_place_for_each_value() -> None:
    codes = pd.Categorical(["b", "a"] * 10, categories=["b", "a", "c"])
    data = table(frame(code=codes), test=frame(code=codes), features=["code"])
    assert data.train.x[:2].tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    words = table(frame(ward=[9, 10] * 10), test=frame(ward=[10, 11] * 10), features=["ward"], categorical=["ward"])
    assert words.inputs.columns[0].values == ("9", "10", "11")
    assert words.test.x[:2].tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


def test_missing_values_are_filled_with_the_training_mean_on_request() -> None:
    ages = [None, 40.0, 60.0, 80.0] * 5
    data = table(frame(age=ages), test=frame(age=[None, 1000.0] * 10), missing="mean", normalise=False)
    assert data.train.x[:2, 0].tolist() == [60.0, 40.0]
    assert data.test.x[:4, 0].tolist() == [60.0, 1000.0, 60.0, 1000.0], "no test row counts"
    assert data.note == "missing values filled with the training rows' mean: 'age' (15)"
    assert data.inputs.tensor([{"age": None, "smokes": True}]).tolist() == [[60.0, 1.0]]
    whole = table(missing="mean", test=frame(), normalise=False)
    assert whole.note == ""
    assert whole.inputs.tensor([{"age": None, "smokes": None}]).tolist() == [[50.0, 0.5]], "later rows may have gaps"


def test_rows_with_missing_values_are_left_out_on_request() -> None:
    holes = frame(age=[None, *AGES[1:]], hospital=["Lyon"] * 11 + [None] + ["Aix"] * 8)
    data = table(holes, test=frame(), missing="drop")
    assert len(data.train) == 18
    assert data.note == "2 of 20 rows left out, with values missing in 'age' (1), 'hospital' (1)"


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"age": [None, *AGES[1:]]}, {}, r"missing values: 'age' \(1\)\. Fill them in, or say missing='mean'"),
        ({"age": [None] * 20}, {"missing": "mean"}, "'age' has no value in any training row"),
        ({"age": [None] * 20}, {"missing": "drop"}, "every row has a missing value"),
        (
            {"outcome": [None, *["well", "ill"] * 9, "ill"]},
            {"missing": "mean"},
            "'outcome' has 1 missing values, first",
        ),
        ({"hospital": [None] + ["Lyon"] * 19}, {}, "'hospital' has 1 missing values, first in row 0"),
        ({"hospital": [" Lyon"] + ["Lyon"] * 19}, {}, "differ by spaces only: ' Lyon'"),
        ({"hospital": [0.5] * 20}, {}, "whole numbers or strings, got 0.5"),
        ({"hospital": [""] * 20}, {}, "names of 1 to 200 characters"),
        ({"ward": ["east"] * 20, "code": ["a"] * 20}, {}, r"columns of text: 'ward', 'code' \(such as 'east'\)"),
        ({"ward": ["x" * 10**6] * 20}, {}, r"columns of text: 'ward' \(such as 'x+\.\.\.'\)"),
        ({"ward": [None, *["east"] * 19]}, {"missing": "mean", "categorical": ["ward"]}, "categories have no mean"),
        ({"born": pd.Timestamp("2020-01-01")}, {}, "columns of dates or times: 'born'"),
        ({"age": [float("inf"), *AGES[1:]]}, {}, "'age' has 1 infinite values, first in row 0"),
        ({"outcome": "ill"}, {}, "'outcome' is 'ill' in every row: there is nothing to learn"),
        ({"outcome": pd.Timestamp("2020-01-01")}, {}, "'outcome' is a date"),
        ({}, {"task": "regression"}, "'outcome' holds no numbers, which task='regression' needs"),
        ({"outcome": 0.5}, {}, "'outcome' is '0.5' in every row"),
        ({"outcome": np.linspace(0, 1, 20)}, {"task": "classification"}, "has fractions, which are no classes"),
        ({}, {"task": "tokens"}, "task of a table must be one of auto, classification, regression, not 'tokens'"),
        ({}, {"missing": "zero"}, "missing of a table must be one of error, mean, drop, not 'zero'"),
        ({}, {"features": "age"}, r"features must be a list of column names, such as \['age'\]"),
        ({}, {"features": ["agee"]}, "columns that are not there: 'agee'. Did you mean 'age'"),
        ({}, {"features": ["age", "outcome"]}, "features names label, client or a column twice: 'outcome'"),
        ({}, {"features": ["age", "age"]}, "a column twice"),
        ({}, {"features": ["age"], "categorical": ["smokes"]}, "no features: 'smokes'"),
        ({}, {"test": [1]}, "test must be a pandas DataFrame or the path of a file, not a list"),
        ({}, {"test": frame(hospital="Nice")}, "1 clients have test samples but no train samples, first Nice"),
        ({}, {"test": frame(age="old")}, "'age' must hold numbers, and row 0 has 'old'"),
        ({}, {"test": frame().drop(columns="age")}, "no column 'age'"),
    ],
)
def test_tables_that_are_refused(change: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        table(frame(**change), **options)
    assert len(str(error.value)) < 500


def test_a_label_that_never_differs_is_refused() -> None:
    for values, said in ((["ill"] * 20, "ill"), ([2.5] * 20, "2.5")):
        with pytest.raises(DataError, match=f"'outcome' is '{said}' in every row: there is nothing to learn"):
            table(frame(outcome=values))


def test_categories_that_read_alike_or_have_no_value_are_refused() -> None:
    for ward in (pd.Categorical([1, "1"] * 10), [None] * 20):
        with pytest.raises(DataError, match="'ward' has no values to make places of, or two that read alike"):
            table(frame(ward=ward), categorical=["ward"], missing="mean")


def test_categories_stay_where_numbers_are_filled() -> None:
    data = table(frame(age=[np.nan, *AGES[1:]], ward=["a", "b"] * 10), categorical=["ward"], missing="mean")
    assert [column.name for column in data.inputs.columns] == ["age", "smokes", "ward"]
    assert data.note == "missing values filled with the training rows' mean: 'age' (1)"


def test_rows_set_aside_for_testing_are_not_measured() -> None:
    """One age of all is large: where it is set aside the mean of the others is theirs."""
    for row in range(20):
        ages = [0.0] * 20
        ages[row] = 1000.0
        data = table(frame(age=ages))
        trained = len(data.train)
        aside = float(data.test.x[:, 0].max()) > 1
        assert data.inputs.mean[0] == pytest.approx(0.0 if aside else 1000 / trained)
        assert data.inputs.std[0] == pytest.approx(1.0 if aside else 1000 * ((trained - 1) ** 0.5) / trained)


def test_ids_in_files_keep_their_zeros_in_both_tables(tmp_path: Path) -> None:
    rows = frame(hospital=["007", "010"] * 10)
    rows.to_csv(tmp_path / "train.csv", index=False)
    rows.iloc[:4].to_csv(tmp_path / "test.csv", index=False)
    data = table(tmp_path / "train.csv", test=tmp_path / "test.csv")
    assert data.client_names == ("007", "010")
    assert data.test_clients is not None
    assert data.test_clients.tolist() == [0, 1, 0, 1]
    alone = accord.from_table(tmp_path / "train.csv", "outcome", test=tmp_path / "test.csv")
    assert [column.name for column in alone.inputs.columns] == ["age", "smokes", "hospital"], (
        "a number, if nothing is said"
    )


def test_roles_that_are_refused() -> None:
    with pytest.raises(DataError, match=r"no label column 'outcom'\. Did you mean 'outcome'"):
        accord.from_table(frame(), "outcom")
    with pytest.raises(DataError, match="both label and client"):
        accord.from_table(frame(), "outcome", "outcome")
    with pytest.raises(DataError, match="no column to learn from"):
        accord.from_table(frame()[["outcome", "hospital"]], "outcome", "hospital")
    twice = pd.concat([frame(), frame()[["age"]]], axis=1)
    with pytest.raises(DataError, match="columns of the same name: 'age'; rename"):
        table(twice)
    with pytest.raises(DataError, match="has no rows"):
        table(frame().iloc[:0])
    with pytest.raises(DataError, match="must be a pandas DataFrame or the path"):
        accord.from_table({"age": [1]}, "age")
    many = frame(outcome=range(20)).merge(pd.DataFrame({"again": [0, 1]}), how="cross")
    with pytest.raises(DataError, match="has 40 different whole numbers: say task='classification'"):
        table(many.assign(outcome=range(40)))


def test_a_site_with_one_sample_trains_and_is_said_to_be_untested() -> None:
    data = table(frame(hospital=["Lyon"] * 19 + ["Aix"]))
    assert data.note == "1 clients have a single sample, which is not tested: 'Aix'"
    assert data.train_clients is not None
    assert (data.train_clients == 0).sum() == 1


def test_a_given_test_table_leaves_no_site_untested() -> None:
    given = frame(hospital=["Lyon"] * 19 + ["Aix"])
    assert table(given, test=given).note == ""


@pytest.mark.parametrize(
    ("largest", "normalise"), [(1e300, True), (1e39, False)], ids=["no deviation", "no single precision"]
)
def test_numbers_beyond_the_float_type_are_refused(largest: float, normalise: bool) -> None:
    with pytest.raises(DataError, match="column 'age' has numbers too large to compute with: write them in a larger"):
        table(frame(age=[*AGES[:-1], largest]), normalise=normalise)
    assert table(frame(age=[*AGES[:-1], 1e38]), normalise=normalise).train.x.isfinite().all()


def test_amounts_beyond_the_float_type_are_refused() -> None:
    with pytest.raises(DataError, match="column 'outcome' has numbers too large to compute with"):
        table(frame(outcome=[0.5] * 19 + [1e39]))


def test_a_row_beyond_the_float_type_is_refused_by_what_was_learnt() -> None:
    inputs = table().raw
    assert inputs is not None
    row = {"age": 1e41, "smokes": True}
    with pytest.raises(DataError, match="column 'age' has numbers too large"):
        inputs.tensor(row)
    assert inputs.tensor(row | {"age": 50.0}).isfinite().all()


def test_a_test_table_without_sites_is_nobodys() -> None:
    """Its rows are mixed, so each site is tested on some of its own, and the note says so."""
    data = table(test=frame().drop(columns="hospital"))
    assert data.test_clients is None
    divided = accord.federate(data)
    assert (divided.test_from, divided.division, divided.names) == ("train", "natural", ("Aix", "Lyon"))
    assert divided.test.sizes.tolist() == [2, 3]
    assert "the test data names no clients: each is tested on 25 % of its own samples" in divided.note


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("a.csv", b"", "has no columns"),
        ("a.csv", b"age,outcome\n", "no rows"),
        ("a.csv", b"age;outcome;hospital\n1;a;b\n2;b;b\n", "one column, 'age;outcome;hospital'.*say separator=';'"),
        ("a.csv", "âge,outcome,hospital\n1,a,b\n".encode("latin-1"), r"not UTF-8 text \(byte 0.*save it again"),
        ("a.csv", "age,outcome,hospital\n1,é,b\n".encode("latin-1"), "not UTF-8 text"),
        ("a.csv", b"age,outcome,hospital\n1,a,b,c,d\n", "cannot be read as a table"),
        ("a.csv", b'age,outcome,hospital\n1,"a,b\n', "cannot be read as a table"),
        ("a.csv", b"age,age,outcome,hospital\n1,2,a,b\n", "columns of the same name: 'age'"),
        ("a.csv", b"\x00\xff\x00\x01" * 100, "not UTF-8 text"),
        ("a.csv", b"x" * (1 << 21), "first line must be names"),
        ("a.csv", b"age,outcome,hospital\n" + b"9" * 10**6 + b",a,b\n1,b,b\n", "'age' has|columns of text: 'age'"),
        ("a.parquet", b"PAR1 nothing of the kind", "cannot be read"),
        ("a.parquet", b"", "cannot be read"),
        ("a.pkl", b"cos\nsystem\n(S'true'\ntR.", r"must end in \.csv, \.tsv, \.parquet, \.pq"),
        ("a.xlsx", b"PK", r"From pandas: frame.to_csv\('a.csv', index=False\)"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, name: str, contents: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(DataError, match=message) as error:
        table(tmp_path / name)
    assert len(str(error.value)) < 600


@pytest.mark.filterwarnings("ignore")  # as in a user's program: here every warning is an error
def test_rows_longer_than_the_names_are_not_cut(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age,outcome\n1,a,east\n2,b,west\n")
    with pytest.raises(DataError, match="cannot be read as a table"):
        tables.read_table(tmp_path / "a.csv")


def test_columns_of_the_same_name_are_named_in_order(tmp_path: Path) -> None:
    names = ["d", "b", "z", "c", "a", "c", "d", "a", "b", "a"]
    (tmp_path / "a.csv").write_text(",".join(names) + "\n" + "0," * 9 + "0\n")
    with pytest.raises(DataError, match="same name: 'a', 'b', 'c', 'd'; rename"):
        tables.read_table(tmp_path / "a.csv")


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_table_of_one_column_is_one(tmp_path: Path, separator: str) -> None:
    (tmp_path / "a.csv").write_text("age\n1\n2\n")
    assert tables.read_table(tmp_path / "a.csv", separator=separator)["age"].tolist() == [1, 2]


def test_what_a_column_holds_does_not_depend_on_how_long_it_is(tmp_path: Path) -> None:
    """More than pandas reads at once, and the only word comes last: it is a column of text from its first row."""
    (tmp_path / "a.csv").write_text("ward\n" + "007\n" * (1 << 20) + "east\n")
    assert tables.read_table(tmp_path / "a.csv")["ward"].drop_duplicates().tolist() == ["007", "east"]


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not there; give a CSV or a Parquet file"):
        table(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        table(tmp_path / "folder.csv")
    frame().to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(DataError, match="separator must be one character"):
        table(tmp_path / "a.csv", separator="::")


@pytest.mark.parametrize(("package", "ending"), [("pandas", "csv"), ("pyarrow", "parquet")])
def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    frame().to_csv(path, index=False) if ending == "csv" else frame().to_parquet(path)
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(DataError, match=rf"needs? {package}; install it: pip install 'accord-fl\[tables\]'"):
        tables.read_table(path)
