"""Means, deviations and how they are written."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from accord.errors import DataError
from accord.report import aggregate, as_json, markdown, read_metrics, read_summary, rich_table, run_lines
from accord.report.tables import Estimate, estimate


def summary(algorithm: str, seed: int, **values: Any) -> dict[str, Any]:
    return {"algorithm": algorithm, "seed": seed, **values}


def test_sample_standard_deviation() -> None:
    # 1, 2, 3, 4: mean 2.5, squares 2.25 + 0.25 + 0.25 + 2.25 = 5, over n - 1 = 3
    assert estimate([1, 2, 3, 4]) == Estimate(2.5, pytest.approx(math.sqrt(5 / 3)), 4)
    assert estimate([0.5]) == Estimate(0.5, None, 1)
    assert estimate([]) is None
    assert estimate([None, "x", math.nan, math.inf]) is None
    assert estimate([None, 2]) == Estimate(2.0, None, 1)


def test_rows_keep_the_order_and_skip_what_is_missing() -> None:
    rows = aggregate(
        [
            summary("b", 0, accuracy=0.5, bytes_up=1000, bytes_down=500, personal_accuracy={"mean": 0.9}),
            summary("a", 0, accuracy=None, client_accuracy={}),
            summary("b", 1, accuracy=0.7, bytes_up=1000, bytes_down=500),
        ]
    )
    assert [(row.algorithm, row.seeds) for row in rows] == [("b", (0, 1)), ("a", (0,))]
    assert rows[0].cells["accuracy"].mean == pytest.approx(0.6)
    assert rows[0].cells["accuracy"].std == pytest.approx(math.sqrt(0.02))
    assert rows[0].cells["bytes"] == Estimate(1500.0, 0.0, 2)
    assert rows[0].cells["personal_accuracy"] == Estimate(0.9, None, 1)
    assert rows[1].cells == {}
    assert json.loads(json.dumps(as_json(rows)))[1] == {"algorithm": "a", "seeds": [0]}


def test_markdown() -> None:
    rows = aggregate(
        [
            summary("a|b", 0, accuracy=0.5, seconds=1.0, client_accuracy={"worst": 0.1, "std": 0.05}),
            summary("a|b", 1, accuracy=0.6, seconds=2.0, client_accuracy={"worst": 0.1, "std": 0.05}),
            summary("c", 0, seconds=3.0),
        ]
    )
    lines = markdown(rows).splitlines()
    assert lines[:4] == [
        "| algorithm | runs | accuracy % | worst client % | client std % | seconds |",
        "|---|---|---|---|---|---|",
        r"| a\|b | 2 | 55.00 ± 7.07 | 10.00 ± 0.00 | 5.00 ± 0.00 | **1.5 ± 0.7** |",
        "| c | 1 | - | - | - | 3.0 |",
    ]


def test_the_best_of_a_column_is_the_largest_or_the_smallest() -> None:
    """By the column's direction; equal as written is equal, and where all are alike there is no best."""
    rows = aggregate(
        [
            summary("a", 0, accuracy=0.5, client_accuracy={"worst": 0.2, "std": 0.05}, drift={"mean": 0.5}),
            summary("b", 0, accuracy=0.6, client_accuracy={"worst": 0.2, "std": 0.01}, drift={"mean": 0.6}),
            summary("c", 0, accuracy=0.600001, balanced_accuracy=0.25),
        ]
    )
    assert markdown(rows).splitlines()[:5] == [
        "| algorithm | runs | accuracy % | balanced accuracy % | worst client % | client std % | update cosine |",
        "|---|---|---|---|---|---|---|",
        "| a | 1 | 50.00 | - | 20.00 | 5.00 | 0.5 |",
        "| b | 1 | **60.00** | - | 20.00 | **1.00** | 0.6 |",
        "| c | 1 | **60.00** | 25.00 | - | - | - |",
    ]
    bold = {str(cell) for column in rich_table(rows).columns for cell in column.cells if cell.style == "bold"}
    assert bold == {"60.00", "1.00"}


def test_a_terminal_table_takes_names_literally() -> None:
    output = io.StringIO()
    Console(file=output, width=100).print(rich_table(aggregate([summary("[red]x", 0, accuracy=0.125)])))
    assert "[red]x" in output.getvalue()
    assert "12.50" in output.getvalue()


def test_lines_of_a_single_run_leave_out_what_was_not_measured() -> None:
    assert run_lines({"algorithm": "local", "accuracy": None, "seconds": 2.0, "personal_accuracy": {"mean": 0.5}}) == [
        ("personal %", "50.00"),
        ("seconds", "2.0"),
    ]


def test_reading_a_folder(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"round": 1}\n{"round": 2, "acc')
    assert read_metrics(tmp_path) == [{"round": 1}]  # the second line was cut by a crash
    (tmp_path / "summary.json").write_text('{"seed": 1}')
    assert read_summary(tmp_path) == {"seed": 1}
    for bad in ("[]", "{", "\xff"):
        (tmp_path / "summary.json").write_text(bad, encoding="latin-1")
        with pytest.raises(DataError, match=r"accord resume"):
            read_summary(tmp_path)
    with pytest.raises(DataError, match=r"metrics\.jsonl"):
        read_metrics(tmp_path / "nowhere")
