"""A table as a data set by name, so that a configuration and the command line can say it."""

from __future__ import annotations

from typing import Annotated

from accord.data.federated import Dataset
from accord.data.files.collection import Places
from accord.data.own.table import Missing, Task, from_table
from accord.data.public.registry import DATASETS, Normalise, SplitSeed, TestFraction


@DATASETS.add("table")
def table(
    places: Places,
    task: Task = "auto",  # the run's own setting
    *,
    path: Annotated[str, "a CSV or Parquet file with a row per sample"],
    label: Annotated[str, "the column to be predicted"],
    client: Annotated[str | None, "the column that says whose sample it is"] = None,
    features: Annotated[tuple[str, ...], "the columns to learn from; none named: all others"] = (),
    categorical: Annotated[tuple[str, ...], "columns of words or codes, made one place per value"] = (),
    test: Annotated[str | None, "a file of the same form for testing"] = None,
    missing: Annotated[
        Missing, "missing values: refused, filled with the training mean, or their rows left out"
    ] = "error",
    separator: Annotated[str | None, "of a CSV file's fields; none: a comma, in a .tsv a tab"] = None,
    schema: Annotated[str | None, "what several sites' tables agreed on: a file of `accord federation schema`"] = None,
    test_fraction: TestFraction = 0.2,
    split_seed: SplitSeed = 0,
    normalise: Normalise = True,
) -> Dataset:
    """Your own table, CSV or Parquet, with a row per sample (`accord run --data table.csv --label outcome`)."""
    return from_table(
        places.own(path),
        label,
        client,
        features=features or None,
        categorical=categorical,
        test=None if test is None else places.own(test),
        task=task,
        missing=missing,
        normalise=normalise,
        test_fraction=test_fraction,
        seed=split_seed,
        separator=separator,
        schema=None if schema is None else places.own(schema),
    )
