"""Tables by hand: settings that are used together, both parts of a table, and the edges of what a column may hold."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from accord.data.columns import Column, by_name, counted, cut, floats, gaps_in, listed, matrix, numbers, quoted, text
from accord.data.federated import Dataset
from accord.data.files.tables import read_table
from accord.data.own import schema as schema_file
from accord.data.own.schema import ColumnSummary, Schema, Summary, agree, write_json
from accord.data.own.summaries import summarise
from accord.data.own.table import from_table
from accord.data.own.table_columns import kind_of
from accord.errors import ConfigError, DataError, RunError


def frame(**more: Any) -> pd.DataFrame:
    """Twenty rows that can be told by their number; every third is ill, five of each four hospitals."""
    rows = np.arange(20)
    columns = {"row": rows * 1.0, "ill": np.where(rows % 3 == 0, "yes", "no"), "site": [f"s{n % 4}" for n in rows]}
    return pd.DataFrame(columns | more)


def plain(rows: Any = None, client: str | None = "site", **options: Any) -> Dataset:
    return from_table(frame() if rows is None else rows, "ill", client, **{"normalise": False, **options})


def alone(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"a": np.arange(10.0), "y": ["u", "v"] * 5} | columns)


def number(name: str = "a", known: int = 1, mean: float = 0.0, variance: float = 0.0) -> ColumnSummary:
    return ColumnSummary(name, "number", (), known, mean, variance)


def said(*columns: ColumnSummary, classes: tuple[str, ...] = ("u", "v"), label: str = "y") -> Summary:
    return Summary(label, "classification", classes, columns or (number(),))


# one table, divided


def test_every_row_stays_with_its_label_and_its_site_and_is_used_once() -> None:
    data = plain()
    seen: list[int] = []
    for pool, clients in ((data.train, data.train_clients), (data.test, data.test_clients)):
        assert clients is not None
        rows = [int(row) for row in pool.x[:, 0].tolist()]
        assert [data.classes[n] for n in pool.y.tolist()] == ["yes" if row % 3 == 0 else "no" for row in rows]
        assert [data.client_names[n] for n in clients.tolist()] == [f"s{row % 4}" for row in rows]
        seen += rows
    assert sorted(seen) == list(range(20))
    assert len(data.test) == 4


def test_what_fills_gaps_is_the_mean_of_the_rows_that_are_kept() -> None:
    """One value is large: where its row is set aside the mean is 0, else 1000 over the known ones."""
    kept = set()
    for row in range(20):
        values = [0.0] * 20
        values[row], values[row - 1] = 1000.0, np.nan
        data = plain(frame(value=values), missing="mean")
        trained = [int(n) for n in data.train.x[:, 0].tolist()]
        known = [n for n in trained if n != (row - 1) % 20]
        assert data.inputs.columns[1].fill == pytest.approx(1000 / len(known) if row in trained else 0.0)
        assert data.note.endswith("training rows' mean: 'value' (1)"), "wherever the gap is"
        kept.add(row in trained)
    assert kept == {True, False}


def test_filled_numbers_are_measured_as_they_are_filled() -> None:
    rows = pd.DataFrame({"a": [np.nan, 40.0, 60.0, 80.0], "y": ["u", "v"] * 2})
    inputs = from_table(rows, "y", test=rows, missing="mean").inputs
    # 60, 40, 60, 80
    assert (inputs.mean, inputs.std) == ((60.0,), (pytest.approx(200**0.5),))


def test_without_sites_every_class_is_tested() -> None:
    """Of 18 a tenth is 2, of 2 it is at least 1."""
    rows = pd.DataFrame({"a": np.arange(20.0), "y": ["u"] * 18 + ["v"] * 2})
    for seed in range(4):
        data = from_table(rows, "y", test_fraction=0.1, seed=seed)
        assert np.bincount(data.test.y.numpy()).tolist() == [2, 1]


def test_without_sites_amounts_are_tested_all_over_their_range() -> None:
    amounts = np.random.default_rng(0).permutation(20) + 0.5
    for seed in range(4):
        data = from_table(pd.DataFrame({"a": range(20), "y": amounts}), "y", test_fraction=0.25, seed=seed)
        assert np.histogram(data.test.y.numpy(), [0, 4, 8, 12, 16, 20])[0].tolist() == [1] * 5


def test_numbers_after_a_category_have_their_own_moments() -> None:
    rows = pd.DataFrame({"ward": ["e", "w"], "a": [10.0, 50.0], "b": [True, False], "y": ["u", "v"]})
    inputs = from_table(rows, "y", test=rows, categorical=["ward"]).inputs
    assert (inputs.mean, inputs.std) == ((0.0, 0.0, 30.0, 0.0), (1.0, 1.0, 20.0, 1.0))


def test_features_are_in_the_order_they_are_named_in() -> None:
    data = plain(frame(other=7.0), features=["other", "row"])
    assert [column.name for column in data.inputs.columns] == ["other", "row"]
    assert set(data.train.x[:, 0].tolist()) == {7.0}


def test_gaps_in_columns_that_are_not_used_cost_no_row() -> None:
    data = plain(frame(other=[None, 1.0] * 10), features=["row"], missing="drop")
    assert (len(data.train) + len(data.test), data.note) == (20, "")


def test_columns_may_have_numbers_for_names() -> None:
    rows = pd.DataFrame([[1.0, 0, 5], [2.0, 1, 5], [3.0, 0, 6], [4.0, 1, 6]])
    data = from_table(rows, "1", "2", test=rows, normalise=False)
    assert [column.name for column in data.inputs.columns] == ["0"]
    assert (data.client_names, data.train.x[:, 0].tolist()) == (("5", "6"), [1.0, 2.0, 3.0, 4.0])
    assert data.test_clients is not None
    assert data.test_clients.tolist() == [0, 0, 1, 1]


def test_a_name_that_is_given_goes_before_the_files(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "file.csv", index=False)
    assert plain(tmp_path / "file.csv", name="mine").name == "mine"
    assert plain(str(tmp_path / "file.csv")).name == "file"
    assert plain().name == "table"


# a table of its own for testing


def test_both_files_are_read_with_the_separator_and_keep_their_codes(tmp_path: Path) -> None:
    rows = frame(ward=["007", "010"] * 10)
    rows.to_csv(tmp_path / "train.csv", index=False, sep=";")
    rows.assign(ward=["010", "0"] * 10).to_csv(tmp_path / "test.csv", index=False, sep=";")
    data = plain(tmp_path / "train.csv", test=tmp_path / "test.csv", separator=";", categorical=["ward"])
    assert data.inputs.columns[1].values == ("0", "007", "010")
    assert data.train.x[:2, 1:].tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert data.test.x[:2, 1:].tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


def test_rows_are_left_out_of_both_tables_and_the_note_says_which() -> None:
    train = frame(row=[None, *range(1, 20)], ill=[*["yes", "no"] * 9, "no", None])
    test = frame(row=[*range(18), None, None])
    data = plain(train, test=test, missing="drop")
    assert data.train.x[:, 0].tolist() == list(range(1, 19))
    assert data.test.x[:, 0].tolist() == list(range(18))
    assert data.test_clients is not None
    assert data.test_clients.tolist() == [n % 4 for n in range(18)]
    assert data.note == (
        "2 of 20 rows left out, with values missing in 'row' (1), 'ill' (1); "
        "2 of 20 test rows left out, with values missing in 'row' (2)"
    )


@pytest.mark.parametrize(
    ("test", "options", "message"),
    [
        (frame(row=[1.0, None] * 10), {}, r"^test rows have missing values: 'row' \(10\)"),
        (frame(ill=["no"] * 3 + [None] * 17), {}, "^test column 'ill' has 17 missing values, first in row 3:"),
        (frame(site=["s0"] * 4 + [None] * 16), {"missing": "mean"}, "^test column 'site' has 16 missing.* row 4:"),
        (frame(row=None), {"missing": "drop"}, "^every test row has a missing value"),
        (frame(site=0.5), {}, "^test column 'site' must be whole numbers or strings"),
        (frame().iloc[:0], {}, "^test has no rows"),
        (pd.concat([frame(), frame()[["row"]]], axis=1), {}, "^test has columns of the same name: 'row'"),
    ],
)
def test_what_is_wrong_with_a_test_table_is_said_of_it(
    test: pd.DataFrame, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        plain(test=test, **options)


def test_a_category_that_is_missing_in_test_rows_only_has_no_mean_either() -> None:
    with pytest.raises(DataError, match="categories have no mean, and values are missing in 'ward'"):
        plain(frame(ward="e"), test=frame(ward=["e", None] * 10), categorical=["ward"], missing="mean")


def test_a_class_that_is_only_tested_is_a_class() -> None:
    data = plain(test=frame(ill=["no", "maybe"] * 10))
    assert data.classes == ("maybe", "no", "yes")
    assert data.test.y[:2].tolist() == [1, 0]
    assert data.train.y[:2].tolist() == [2, 1]


def test_a_label_that_never_differs_in_training_is_refused_whatever_is_tested() -> None:
    for train, test in (("no", ["no", "yes"] * 10), (0.5, [0.5, 1.5] * 10)):
        with pytest.raises(DataError, match="in every row: there is nothing to learn"):
            plain(frame(ill=train), test=frame(ill=test))


def test_fractions_in_either_table_make_amounts() -> None:
    data = plain(frame(ill=[0, 1] * 10), test=frame(ill=[0.5, 1.0] * 10))
    assert data.problem == "regression"
    assert (data.train.y[:2].tolist(), data.test.y[:2].tolist()) == ([0.0, 1.0], [0.5, 1.0])
    assert data.test.y.dtype == data.train.y.dtype == torch.get_default_dtype()


def test_places_are_those_the_training_table_declares() -> None:
    train = frame(ward=pd.Categorical(["e", "w"] * 10, categories=["w", "n", "e"]))
    data = plain(train, test=frame(ward=pd.Categorical(["e", "w"] * 10)), features=["ward"])
    assert data.train.x[:2].tolist() == data.test.x[:2].tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


# labels and roles


def test_classes_below_zero_are_in_the_order_of_their_values() -> None:
    assert from_table(alone(y=[10, -2, 9, -1, 10] * 2), "y").classes == ("-2", "-1", "9", "10")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client": "sites"}, "there is no client column 'sites'. Did you mean 'site'"),
        ({"categorical": "row"}, r"^categorical must be a list of column names, such as \['row'\]"),
        ({"categorical": ["ro"]}, "^categorical names columns that are not there: 'ro'. Did you mean 'row'"),
        ({"features": ["row", "site"]}, "features names label, client or a column twice: 'site';"),
        ({"features": []}, "no column to learn from beside 'ill', 'site'"),
        ({"features": [0]}, "features must be a list of column names"),
    ],
)
def test_roles_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        plain(**options)


def test_the_first_gap_of_a_label_is_named_by_its_row() -> None:
    with pytest.raises(DataError, match=r"^column 'ill' has 2 missing values, first in row 5:"):
        plain(frame(ill=[*["no"] * 5, None, "yes", None, *["yes"] * 12]), missing="mean")


@pytest.mark.parametrize("endless", [float("inf"), 10**400])
def test_endless_values_among_objects_are_refused_as_numbers(endless: Any) -> None:
    """They are no text, and no class called inf."""
    odd = pd.Series([0.5, endless] * 5, dtype=object)
    with pytest.raises(DataError, match="column 'a' has 5 infinite values, first in row 1"):
        from_table(alone(a=odd), "y")
    with pytest.raises(DataError, match="column 'y' has 5 infinite values, first in row 1"):
        from_table(alone(y=odd), "y")


def test_a_column_of_text_is_shown_by_a_value_that_is_there() -> None:
    words = pd.Series([None, 3, "east", "west", 1] * 2, dtype=object)
    with pytest.raises(DataError, match=r"columns of text: 'a' \(such as 'east'\)\. Say categorical=\['a'\]"):
        from_table(alone(a=words), "y", missing="mean")


@pytest.mark.parametrize("empty", ["", "nan"])
def test_a_label_that_is_spelt_as_nothing_is_no_amount(empty: str) -> None:
    odd = pd.Series(["1", "2.5", empty, "3", "4"] * 2, dtype=object)
    for missing in ("error", "mean", "drop"):
        with pytest.raises(DataError, match="the label 'y' has no number in row 2;"):
            from_table(alone(y=odd), "y", missing=missing)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="the label 'y' has no number in row 2;"):
        from_table(alone(y=np.arange(10) + 0.5), "y", test=alone(y=odd))


def test_numbers_that_are_spelt_as_nothing_are_filled_and_counted() -> None:
    rows = alone(a=pd.Series(["1", "", "5", "3", ""] * 2, dtype=object))
    data = from_table(rows, "y", test=rows, missing="mean", normalise=False)
    assert data.train.x[:3, 0].tolist() == [1.0, 3.0, 5.0]
    assert data.note == "missing values filled with the training rows' mean: 'a' (8)"
    with pytest.raises(DataError, match="column 'a' has 4 missing values, first in row 1;"):
        from_table(rows, "y", test=rows)


def test_rows_that_are_left_out_have_no_say() -> None:
    """Neither their ward nor their class nor their site is one of the data set's."""
    odd = {"row": np.nan, "ill": "dead", "site": "s9", "ward": "rare"}
    rows = pd.concat([frame(ward="east"), pd.DataFrame([odd])], ignore_index=True)
    data = plain(rows, categorical=["ward"], missing="drop")
    assert (data.classes, data.client_names) == (("no", "yes"), ("s0", "s1", "s2", "s3"))
    assert data.inputs.columns[1].values == ("east",)
    summary = summarise(rows, "ill", features=["row", "ward"], categorical=["ward"], missing="drop")
    assert (summary.classes, summary.columns[1].values) == (("no", "yes"), ("east",))


def test_all_columns_of_dates_are_named_before_those_of_text() -> None:
    day = pd.Timestamp("2026-01-02")
    with pytest.raises(DataError, match=r"^columns of dates or times: 'b', 'd'\. Make"):
        from_table(alone(w="east", b=day, d=pd.Series([day.date()] * 10, dtype=object)), "y")


def test_true_or_false_is_what_holds_nothing_else() -> None:
    assert kind_of(np.array([np.bool_(True), False, None], object)) == "bool"
    assert kind_of(np.array([True, 2], object)) == "number"
    assert kind_of(np.array([True, "2"], object)) == "number"
    assert kind_of(np.array([True, "x"], object)) == "text"


def test_each_site_with_a_single_sample_is_named() -> None:
    data = plain(frame(site=["c", "b", *["d"] * 17, "a"]))
    assert data.note == "3 clients have a single sample, which is not tested: 'a', 'b', 'c'"
    assert data.test_clients is not None
    assert set(data.test_clients.tolist()) == {3}


# several sites


def test_a_summary_reads_its_file_as_a_table_does(tmp_path: Path) -> None:
    alone(ward=["007", "010"] * 5).to_csv(tmp_path / "a.csv", index=False, sep=";")
    found = summarise(tmp_path / "a.csv", "y", separator=";", categorical=["ward"])
    assert found.columns[1].values == ("007", "010")
    amounts = summarise(alone(y=[1, 2] * 5), "y", task="regression")
    assert (amounts.problem, amounts.classes) == ("regression", ("y",))


def test_a_summary_counts_the_values_that_are_known() -> None:
    """Only the twenty rows of v have one, and a fifth of them is set aside."""
    table = pd.DataFrame({"a": [None, 1.0] * 20, "y": ["u", "v"] * 20})
    assert summarise(table, "y", missing="mean").columns == (number("a", 16, 1.0, 0.0),)


def test_a_category_has_a_place_for_values_of_rows_that_are_set_aside() -> None:
    for row in range(10):
        wards = ["east"] * 10
        wards[row] = "rare"
        assert summarise(alone(ward=wards), "y", categorical=["ward"]).columns[1].values == ("east", "rare")


def test_a_table_has_its_columns_in_the_order_of_its_schema() -> None:
    schema = agree({"one": said(number("b", 2, 1.0, 4.0), number("a", 2, 5.0, 0.0))})
    data = from_table(alone(b=3.0)[["y", "a", "b"]], "y", schema=schema, test=alone(b=5.0))
    assert data.train.x[:, 0].tolist() == [1.0] * 10  # (3 - 1) / 2
    assert data.test.x.tolist() == [[2.0, row - 5.0] for row in range(10)]


def test_labels_of_both_tables_are_those_of_the_schema() -> None:
    schema = agree({"one": said(classes=("0", "1", "2"))})
    data = from_table(alone(y=[2.0, 1.0] * 5), "y", schema=schema, test=alone(y=[1, 2] * 5))
    assert (data.classes, data.problem) == (("0", "1", "2"), "classification")
    assert (data.train.y.tolist(), data.test.y.tolist()) == ([2, 1] * 5, [1, 2] * 5)
    with pytest.raises(DataError, match="classes the schema has not: '3'"):
        from_table(alone(y=[2.0, 1.0] * 5), "y", schema=schema, test=alone(y=3))


def test_whole_numbers_are_amounts_where_the_schema_says_so() -> None:
    schema = agree({"one": Summary("y", "regression", ("y",), (number(),))})
    data = from_table(alone(y=[0, 1] * 5), "y", schema=schema, test=alone(y=4))
    assert (data.problem, data.classes, data.train.y.dtype) == ("regression", ("y",), torch.get_default_dtype())
    assert data.test.y.tolist() == [4.0] * 10


def test_what_is_said_beside_a_schema_must_be_the_same() -> None:
    words = [ColumnSummary(name, "category", ("x",)) for name in ("v", "w")]
    schema = agree({"one": said(number(), *words)})
    assert schema.roles("y", ["a", "v", "w"], ["w", "v"]) == (["a", "v", "w"], ["v", "w"])
    assert schema.roles("y", (), ()) == (["a", "v", "w"], ["v", "w"])
    for categorical in (["v"], ["v", "w", "a"]):
        with pytest.raises(DataError, match="the schema has the categories 'v', 'w': leave `categorical` out"):
            schema.roles("y", None, categorical)
    with pytest.raises(DataError, match="the schema learns from 'a', 'v', 'w'"):
        schema.roles("y", ["a", "w", "v"], ())


def test_every_site_is_held_against_the_first() -> None:
    with pytest.raises(DataError, match="three predicts 'z', one 'y': say --task and --label alike"):
        agree({"one": said(), "two": said(), "three": said(label="z")})
    with pytest.raises(DataError, match="three and one differ in columns: 'b'"):
        agree({"one": said(), "two": said(), "three": said(number(), number("b"))})
    with pytest.raises(ConfigError, match="one summary or more"):
        agree({})


def test_columns_of_several_kinds_are_put_together() -> None:
    """Categories by the size of their numbers, and a column that is a number somewhere is one."""
    one = said(ColumnSummary("w", "category", ("9", "11")), ColumnSummary("m", "bool"), number("a", 4, 6.0, 9.0))
    two = said(ColumnSummary("w", "category", ("10",)), number("m", 4, 0.5, 0.25), number("a", 4, 6.0, 9.0))
    inputs = agree({"one": one, "two": two}).inputs
    assert inputs.columns == (
        Column("w", "category", ("9", "10", "11")),
        Column("m", "number", fill=0.5),
        Column("a", "number", fill=6.0),
    )
    assert inputs.shape == (5,)
    assert (inputs.mean, inputs.std) == ((0.0, 0.0, 0.0, 0.5, 6.0), (1.0, 1.0, 1.0, 0.5, 3.0))


def test_a_schema_names_no_class_twice() -> None:
    record = agree({"one": said()}).to_json()
    for classes in ([], ["u", "u"]):
        with pytest.raises(DataError, match=r"^it names no classes, or one twice"):
            Schema.from_json({**record, "classes": classes}, "it")


def test_files_of_schemas_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    for content in ("{", "[" * 200_000, "\udcff"):
        (tmp_path / "a.json").write_bytes(content.encode(errors="surrogateescape"))
        with pytest.raises(DataError, match=r"a\.json cannot be read as JSON"):
            schema_file.read_json(tmp_path / "a.json")
    with pytest.raises(RunError, match=r"cannot write .*b\.json: No such file"):
        write_json(tmp_path / "none" / "b.json", said())
    write_json(tmp_path / "b.json", said())
    assert json.loads((tmp_path / "b.json").read_text())["columns"][0]["values"] == []


# files


def test_endings_may_be_large_and_what_is_said_goes_before_them(tmp_path: Path) -> None:
    for name, separator in (("A.CSV", ","), ("A.TSV", "\t")):
        (tmp_path / name).write_text(f"a{separator}b\n1{separator}2\n")
        assert read_table(tmp_path / name).to_dict("list") == {"a": [1], "b": [2]}
    (tmp_path / "b.tsv").write_text("a;b\n1;2\n")
    assert read_table(tmp_path / "b.tsv", separator=";").to_dict("list") == {"a": [1], "b": [2]}
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "c.PQ")
    assert read_table(tmp_path / "c.PQ").to_dict("list") == {"a": [1]}


def test_a_table_may_lie_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    assert read_table("~/a.csv")["b"].tolist() == [2]


def test_a_name_in_quotes_may_hold_the_separator(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"age, years",b\n1,2\n')
    assert list(read_table(tmp_path / "a.csv").columns) == ["age, years", "b"]
    (tmp_path / "b.csv").write_text("a|b\n1|2\n")
    with pytest.raises(DataError, match=r"has one column, 'a\|b'.*say separator='\|'"):
        read_table(tmp_path / "b.csv")


def test_only_columns_that_are_named_keep_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n007,007\n")
    assert read_table(tmp_path / "a.csv", ["b", "absent"]).to_dict("list") == {"a": [7], "b": ["007"]}


# columns


def test_rows_may_be_tensors_or_a_tuple_of_mappings() -> None:
    columns = (Column("a", "number"), Column("b", "number"))
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert matrix(columns, rows).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert matrix(columns, {"b": rows[:, 1], "a": rows[:, 0]}).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert matrix(columns, ({"b": 2, "a": 1}, {"a": 3, "b": 4})).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert by_name({"a": b"x", "c": 0}, ["a"]) == {"a": [b"x"]}, "bytes are one value"


def test_what_is_missing_is_seen_in_columns_of_every_kind() -> None:
    nothing = [None, float("nan"), np.float32("nan"), pd.NA, pd.NaT, 0, "", "nan", False]
    assert gaps_in(np.array(nothing, dtype=object)).tolist() == [True] * 5 + [False] * 4
    assert gaps_in(np.array(["2026-01-01", "NaT"], dtype="M8[D]")).tolist() == [False, True]
    assert gaps_in(np.array([1, "NaT"], dtype="m8[s]")).tolist() == [False, True]
    assert gaps_in(np.array([0.0, np.nan])).tolist() == [False, True]
    assert gaps_in(np.array([0, 1])).tolist() == [False, False]


def test_numbers_among_objects() -> None:
    values = np.array([Decimal("1.5"), np.bool_(True), "1e3", np.int8(-3), "", pd.NA], dtype=object)
    found = numbers(values, "a")
    assert found.dtype == np.float64
    assert found[:4].tolist() == [1.5, 1.0, 1000.0, -3.0]
    assert np.isnan(found[4:]).all()
    assert floats(np.array([np.inf, 1], dtype=object), "a").tolist() == [np.inf, 1.0]


def test_names_of_values() -> None:
    assert [text(value) for value in (3, 3.0, np.int64(3), np.float32(3), "3")] == ["3"] * 5
    assert [text(value) for value in (2.5, np.float64(2.5), True, np.bool_(False), "3.0")] == [
        *("2.5", "2.5", "True"),
        *("False", "3.0"),
    ]


def test_messages_are_short() -> None:
    assert listed("abcdefgh") == "'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'"
    assert listed("abcdefghij") == "'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h' and 2 more"
    assert counted({"a": 3, "b": 1}) == "'a' (3), 'b' (1)"
    assert cut("x" * 60) == "x" * 60
    assert cut("x" * 61) == "x" * 57 + "..."
    assert (quoted("a"), quoted(3), quoted([0] * 100)) == ("'a'", "3", "[" + "0, " * 18 + "0," + "...")


def test_a_gap_is_named_by_how_many_there_are_and_the_first() -> None:
    with pytest.raises(DataError, match="column 'a' has 2 missing values, first in row 1;"):
        Column("a", "number").encoded([1.0, None, None])
    with pytest.raises(DataError, match="column 'a' has 2 infinite values, first in row 1;"):
        numbers(np.array([0, np.inf, -np.inf]), "a")


@pytest.mark.parametrize("constant", [0.1, 0.7, -1234.56, 1e9 + 0.3, 0.0])
def test_a_constant_column_becomes_zero_and_another_value_stays_small(constant: float) -> None:
    """In float64 the mean of 0.1 three times is not 0.1, and a deviation of 1e-17 would make a new value enormous."""
    given = pd.DataFrame({"c": [constant] * 30, "x": range(30), "y": [0, 1] * 15, "at": ["a", "b", "b"] * 10})
    data = from_table(given, "y", "at", test=given)
    assert float(data.train.x[:, 0].abs().max()) < 1e-4
    assert float(data.inputs.tensor([{"c": constant + 2.0, "x": 3}])[0, 0]) == pytest.approx(2.0, rel=1e-3)
    merged = agree({str(name): summarise(rows.drop(columns="at"), "y") for name, rows in given.groupby("at")})
    assert merged.inputs.std[0] == 1.0
    assert merged.inputs.std[1] > 5
