"""Tables at several sites, prepared alike without anybody's rows: the numbers are those of one table of all rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from accord.config import load_config
from accord.data import from_table
from accord.data.own import schema as schema_file
from accord.data.own.schema import ColumnSummary, Schema, Summary, agree, write_json
from accord.data.own.summaries import summarise
from accord.engine.build import build_data
from accord.errors import ConfigError, DataError


def frame(start: int, rows: int, ill: bool | None = None, ward: str = "a") -> pd.DataFrame:
    rng = np.random.default_rng(start)
    sick = rng.random(rows) > 0.5 if ill is None else np.full(rows, ill)
    numbers = {"age": start + rng.normal(0, 5, rows), "pulse": rng.integers(50, 90, rows), "smokes": sick}
    return pd.DataFrame({**numbers, "ward": [ward, "both"] * (rows // 2), "outcome": np.where(sick, "ill", "well")})


SITES = {"Aix": frame(40, 20), "Lyon": frame(60, 30, True, "b"), "Pau": frame(20, 10, False, "c")}
CHOICES: dict[str, Any] = {"categorical": ["ward"], "test_fraction": 0.2}


def summaries(**more: Any) -> dict[str, Summary]:
    return {site: summarise(table, "outcome", **{**CHOICES, **more}) for site, table in SITES.items()}


def test_a_schema_is_that_of_all_rows() -> None:
    """Sites of one class and with wards of their own among them."""
    schema = agree(summaries())
    assert (schema.label, schema.problem, schema.classes) == ("outcome", "classification", ("ill", "well"))
    columns = schema.inputs.columns
    assert [column.name for column in columns] == ["age", "pulse", "smokes", "ward"]
    assert columns[3].values == ("a", "b", "both", "c")
    kept = [from_table(table, "outcome", schema=schema, normalise=False, **CHOICES) for table in SITES.values()]
    rows = np.concatenate([data.train.x.double().numpy() for data in kept])
    assert len(rows) == 48
    np.testing.assert_allclose(schema.inputs.mean[:2], rows[:, :2].mean(0), rtol=1e-6)
    np.testing.assert_allclose(schema.inputs.std[:2], rows[:, :2].std(0), rtol=1e-6)
    assert schema.inputs.mean[2:] == (0.0,) * 5
    assert schema.inputs.std[2:] == (1.0,) * 5


def test_all_sites_prepare_alike() -> None:
    schema = agree(summaries())
    made = {site: from_table(table, "outcome", schema=schema) for site, table in SITES.items()}
    assert len({(data.classes, data.inputs, data.train.x.shape[1:]) for data in made.values()}) == 1
    assert set(made["Lyon"].train.y.tolist()) == {0}
    assert set(made["Pau"].train.y.tolist()) == {1}
    together = torch.cat([data.train.x for data in made.values()])[:, :2]
    torch.testing.assert_close(together.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(together.std(0, correction=0), torch.ones(2), atol=1e-5, rtol=0)


def test_a_schema_lives_in_a_file_and_in_a_configuration(tmp_path: Path) -> None:
    for site, summary in summaries().items():
        write_json(tmp_path / f"{site}.json", summary)
    read = {site: Summary.read(tmp_path / f"{site}.json") for site in SITES}
    assert read == summaries()
    schema = agree(read)
    write_json(tmp_path / "schema.json", schema)
    assert Schema.read(tmp_path / "schema.json") == schema
    pd.concat([table.assign(site=site) for site, table in SITES.items()]).to_csv(tmp_path / "all.csv", index=False)
    said = {"path": "all.csv", "label": "outcome", "client": "site", "schema": "schema.json"}
    sets = [f"data.{name}={tmp_path / word if name in ('path', 'schema') else word}" for name, word in said.items()]
    data = build_data(load_config(sets=["data.name=table", *sets]))
    assert data.inputs == schema.inputs
    assert data.names == ("Aix", "Lyon", "Pau")
    with pytest.raises(ConfigError, match="exists already and is not written over"):
        write_json(tmp_path / "schema.json", schema)


def test_amounts_agree_too() -> None:
    sites = {site: summarise(table[["pulse", "age"]], "age") for site, table in SITES.items()}
    schema = agree(sites)
    assert (schema.problem, schema.classes) == ("regression", ("age",))
    assert from_table(SITES["Aix"], "age", schema=schema).problem == "regression"


def test_missing_numbers_are_filled_with_the_agreed_mean() -> None:
    tables = {site: table.drop(columns="ward").copy() for site, table in SITES.items()}
    tables["Pau"].loc[0, "age"] = np.nan
    schema = agree({s: summarise(table, "outcome", missing="mean") for s, table in tables.items()})
    made = from_table(tables["Pau"], "outcome", schema=schema, missing="mean")
    ages = torch.cat([made.train.x, made.test.x])[:, 0]
    assert float(ages.abs().min()) == pytest.approx(0, abs=1e-6)
    with pytest.raises(DataError, match="rows have missing values"):
        from_table(tables["Pau"], "outcome", schema=schema)


def change(table: pd.DataFrame, **columns: Any) -> dict[str, pd.DataFrame]:
    return {"Aix": SITES["Aix"].drop(columns="ward"), "Pau": table.drop(columns="ward").assign(**columns)}


@pytest.mark.parametrize(
    ("tables", "options", "message"),
    [
        (
            change(frame(20, 10), more=1),
            {},
            "Pau and Aix differ in columns: 'more'. Name those all have",
        ),
        (change(frame(20, 10), outcome=np.arange(10) / 3), {}, "Pau is for 'regression', Aix 'classification'"),
        (
            change(frame(20, 10), smokes=pd.Categorical(["yes"] * 10)),
            {},
            "is a category at 'Pau' only: say",
        ),
        ({"Pau": frame(20, 10, True).drop(columns="ward")}, {}, "is 'ill' at every site: there is nothing to learn"),
    ],
)
def test_what_does_not_go_together_is_said(
    tables: dict[str, pd.DataFrame], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message.replace(".", r"\.")):
        agree({site: summarise(table, "outcome", **options) for site, table in tables.items()})


def test_a_table_must_fit_its_schema() -> None:
    schema = agree(summaries())
    table = SITES["Aix"]
    with pytest.raises(DataError, match="the schema predicts 'outcome', not 'age'"):
        from_table(table, "age", schema=schema)
    with pytest.raises(DataError, match="the schema learns from"):
        from_table(table, "outcome", schema=schema, features=["age"])
    with pytest.raises(DataError, match="has classes the schema has not: 'dead'"):
        from_table(table.assign(outcome="dead"), "outcome", schema=schema)
    with pytest.raises(DataError, match="has values it did not have"):
        from_table(table.assign(ward="z"), "outcome", schema=schema)
    with pytest.raises(DataError, match="columns that are not there: 'pulse'"):
        from_table(table.drop(columns="pulse"), "outcome", schema=schema)


@pytest.mark.parametrize(
    "damage",
    [
        lambda said: said.pop("label"),
        lambda said: said.update(format=2),
        lambda said: said.update(classes=[]),
        lambda said: said.update(problem="guess"),
        lambda said: said["inputs"].update(std=[0.0] * 7),
    ],
)
def test_damaged_schemas_are_refused(damage: Any, tmp_path: Path) -> None:
    said = agree(summaries()).to_json()
    damage(said)
    (tmp_path / "schema.json").write_text(json.dumps(said))
    with pytest.raises(DataError):
        Schema.read(tmp_path / "schema.json")


def test_a_summary_without_a_known_value_is_one() -> None:
    """A column that a site has nothing in, as it goes through a file."""
    said = summaries()["Aix"].to_json()
    said["columns"][0].update(known=0, mean=0.0, variance=0.0)
    read = Summary.from_json(said, "it")
    assert read.columns[0].known == 0
    assert read.to_json() == said


@pytest.mark.parametrize(
    "damage",
    [
        lambda column: column.update(kind="guess"),
        lambda column: column.update(values=[1]),
        lambda column: column.update(known=-1),
        lambda column: column.update(mean=float("inf")),
        lambda column: column.update(variance=True),
        lambda column: column.update(rows=[[1, 2]]),
    ],
)
def test_damaged_summaries_are_refused(damage: Any, tmp_path: Path) -> None:
    said = summaries()["Aix"].to_json()
    damage(said["columns"][0])
    (tmp_path / "summary.json").write_text(json.dumps(said))
    with pytest.raises(DataError):
        Summary.read(tmp_path / "summary.json")


@pytest.mark.parametrize("kind", [Schema, Summary])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "of another version of Accord"),
        ({"problem": "guess"}, "the problem must be classification or regression"),
        ({"classes": ["ill", 1]}, "classes must be a list of words"),
        ({"classes": "ill"}, "classes is 'ill', which it cannot be"),
        ({"label": 3}, "label is 3, which it cannot be"),
        ({"more": 1}, "must have the fields format, label, problem, classes"),
    ],
)
def test_both_kinds_of_file_have_a_sound_head(kind: Any, change: dict[str, Any], words: str) -> None:
    said = agree(summaries()).to_json() if kind is Schema else summaries()["Aix"].to_json()
    assert said["format"] == 1
    kind.from_json(said, "it")
    with pytest.raises(DataError, match=f"^it:? .*{words}|^it {words}"):
        kind.from_json({**said, **change}, "it")


def test_what_a_summary_says_of_columns_that_are_no_numbers() -> None:
    table = pd.DataFrame({"ward": ["b", "a"] * 5, "new": [True, False] * 5, "gone": [np.nan] * 10, "y": ["u", "v"] * 5})
    said = summarise(table, "y", categorical=["ward"], missing="mean").to_json()["columns"]
    nothing = {"known": 0, "mean": 0.0, "variance": 0.0}
    assert said == [
        {"name": "ward", "kind": "category", "values": ["a", "b"], **nothing},
        {"name": "new", "kind": "bool", "values": [], **nothing},
        {"name": "gone", "kind": "number", "values": [], **nothing},
    ]


def test_numbers_too_large_to_be_measured_are_refused() -> None:
    table = pd.DataFrame({"a": [1e200, -1e200] * 5, "y": ["u", "v"] * 5})
    with pytest.raises(DataError, match="column 'a' has numbers too large to compute with"):
        summarise(table, "y")


@pytest.mark.parametrize("row", range(10))
def test_no_row_of_a_summary_may_be_endless(row: int) -> None:
    """Those that are set aside for testing neither."""
    table = pd.DataFrame({"a": np.arange(10.0), "y": ["u", "v"] * 5})
    table.loc[row, "a"] = np.inf
    with pytest.raises(DataError, match=f"column 'a' has 1 infinite values, first in row {row}"):
        summarise(table, "y")


def test_choices_of_a_summary_are_those_of_a_table() -> None:
    for choice in ("task", "missing"):
        with pytest.raises(DataError, match=f"{choice} of a table must be one of"):
            summarise(SITES["Aix"], "outcome", categorical=["ward"], **{choice: "guess"})


def test_a_written_file_is_text_for_people_and_nothing_is_left_of_a_bad_one(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", Summary("âge", "regression", ("âge",), ()))
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert '"label": "âge"' in text
    assert text.endswith("}\n")
    column = ColumnSummary("a", "number", (), 1, float("nan"), 0.0)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "b.json", Summary("y", "regression", ("y",), (column,)))
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def said(classes: tuple[str, ...] = ("ill", "well"), **kinds: str) -> Summary:
    columns = tuple(ColumnSummary(name, kind, (), 1) for name, kind in kinds.items())
    return Summary("y", "classification", classes, columns)


def test_sites_and_columns_that_differ_are_named_in_order() -> None:
    with pytest.raises(DataError, match="two and one differ in columns: 'a', 'b', 'c', 'd', 'e', 'f'"):
        agree(
            {
                "one": said(z="number", c="bool", a="bool", e="bool"),
                "two": said(z="number", f="bool", b="bool", d="bool"),
            }
        )
    sites = {"Pau": said(a="category"), "Aix": said(a="category"), "Lyon": said(a="number")}
    with pytest.raises(DataError, match="is a category at 'Aix', 'Pau' only"):
        agree(sites)


def test_classes_of_all_sites_are_in_the_order_of_their_values() -> None:
    assert agree({"one": said(("9", "-1"), a="number"), "two": said(("10", "2.5"), a="number")}).classes == (
        *("-1", "2.5"),
        *("9", "10"),
    )
    mixed = agree({"one": said(("9", "x"), a="number"), "two": said(("10",), a="number")})
    assert mixed.classes == ("10", "9", "x"), "words among them: as words"


def test_columns_of_sites_go_together_by_name() -> None:
    """The second site has them in another order."""
    age, pulse = (ColumnSummary(name, "number", (), 1, mean, 0.0) for name, mean in (("age", 40.0), ("pulse", 70.0)))
    sites = {
        "one": Summary("y", "regression", ("y",), (age, pulse)),
        "two": Summary("y", "regression", ("y",), (pulse, age)),
    }
    found = agree(sites).inputs
    assert ([column.name for column in found.columns], found.mean, found.std) == (
        *(["age", "pulse"], (40.0, 70.0)),
        (1.0, 1.0),
    )


def test_a_site_may_know_one_amount_only_where_others_know_more() -> None:
    table = pd.DataFrame({"a": np.arange(10.0), "y": np.full(10, 2.5)})
    schema = agree({"one": summarise(table, "y"), "two": summarise(table.assign(y=np.arange(10) / 3), "y")})
    assert from_table(table, "y", schema=schema).train.y.tolist() == [2.5] * 8
    with pytest.raises(DataError, match=r"the label 'y' is '2\.5' in every row: there is nothing to learn"):
        from_table(table, "y")


def test_classes_a_schema_has_not_are_named_in_order() -> None:
    schema = agree({"one": said(a="number")})
    table = pd.DataFrame({"a": np.arange(8.0), "y": ["h", "ill", "e", "g", "c", "d", "f", "well"]})
    with pytest.raises(DataError, match="'y' has classes the schema has not: 'c', 'd', 'e', 'f', 'g', 'h'"):
        from_table(table, "y", schema=schema)


def test_with_a_schema_nothing_is_filled_with_a_tables_own_mean() -> None:
    """And what a table without gaps becomes has nothing to fill a later one with."""
    schema = agree({s: summarise(t.drop(columns="ward"), "outcome", missing="mean") for s, t in SITES.items()})
    table = SITES["Aix"].drop(columns="ward").copy()
    table.loc[3, "age"] = np.nan
    assert from_table(table, "outcome", schema=schema, missing="mean").note == ""
    plain = from_table(SITES["Aix"].drop(columns="ward"), "outcome").inputs
    assert [column.fill for column in plain.columns] == [None] * 3


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        Schema.read(tmp_path / "absent.json")
    (tmp_path / "summary.json").write_text(
        '{"format": 1, "label": "y", "problem": "regression", "classes": [], "columns": [1]}'
    )
    with pytest.raises(DataError, match=r"a column of .* must have the fields"):
        Summary.read(tmp_path / "summary.json")


def test_a_number_that_is_the_same_everywhere_is_left_as_it_is() -> None:
    """What is divided by is 1, not 0; and moments of sites are put together by how many values they know."""

    def column(known: int, mean: float, variance: float) -> Summary:
        return Summary("y", "regression", ("y",), (ColumnSummary("a", "number", (), known, mean, variance),))

    same = agree({"one": column(3, 7.0, 0.0), "two": column(5, 7.0, 0.0)}).inputs
    assert (same.mean, same.std, same.columns[0].fill) == ((7.0,), (1.0,), 7.0)
    # 3 values of mean 1 and variance 2, one value 5: mean 2, variance (3 * (2 + 1) + 1 * (0 + 9)) / 4
    other = agree({"one": column(3, 1.0, 2.0), "two": column(1, 5.0, 0.0), "none": column(0, 0.0, 0.0)}).inputs
    assert (other.mean, other.std) == ((2.0,), (pytest.approx(4.5**0.5),))
    with pytest.raises(DataError, match="column 'a' has no value at any site"):
        agree({"none": column(0, 0.0, 0.0)})


def test_a_file_may_be_as_large_as_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}')
    monkeypatch.setattr(schema_file, "LARGEST", 8)
    assert schema_file.read_json(path) == {"a": 1}
    monkeypatch.setattr(schema_file, "LARGEST", 7)
    with pytest.raises(DataError, match="is larger than"):
        schema_file.read_json(path)
