"""Tables of methods on narrow terminals: fewer columns, said below; global and personal models side by side."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from accord.report import aggregate, markdown, rich_table
from accord.report.tables import BETTER, shown, unmeasured


def summary(
    algorithm: str, seed: int, at_clients: float | None, personal: float | None, **others: Any
) -> dict[str, Any]:
    return {
        "algorithm": algorithm,
        "seed": seed,
        "accuracy": at_clients,
        "best_accuracy": at_clients,
        "client_accuracy": {} if at_clients is None else {"worst": 0.1, "mean": at_clients, "std": 0.05},
        **({} if personal is None else {"personal_accuracy": {"mean": personal}}),
        "bytes_up": 1000,
        "bytes_down": 500,
        "seconds": 2.5,
        **others,
    }


ROWS = aggregate(
    [
        *(summary("ditto", seed, 0.5 + seed / 100, 0.7 + seed / 100, auroc=0.75) for seed in (0, 1)),
        *(summary("fedprox: mu=0.001", seed, 0.8 + seed / 100, 0.7, auroc=0.625) for seed in (0, 1)),
        summary("fedper", 0, None, 0.6),
        summary("fedavg", 0, 0.5, None),
    ]
)


def drawn(rows: Any, width: int | None) -> str:
    output = io.StringIO()
    Console(file=output, width=width or 1000).print(rich_table(rows, width))
    return output.getvalue()


def test_the_better_of_a_methods_two_models_is_marked() -> None:
    lines = markdown(ROWS).splitlines()
    titles = [title.strip() for title in lines[0].split("|")]
    place = titles.index("mean client %")
    assert titles[place + 1] == "personal %", "side by side"
    pairs = [[cell.strip().strip("*") for cell in line.split("|")[place : place + 2]] for line in lines[2:6]]
    assert pairs == [
        ["50.50 ± 0.71", f"70.50 ± 0.71 {BETTER}"],
        [f"80.50 ± 0.71 {BETTER}", "70.00 ± 0.00"],
        ["-", "60.00"],
        ["50.00", "-"],
    ]
    assert BETTER in lines[-1]


def test_without_personal_models_there_is_nothing_beside() -> None:
    text = markdown(aggregate([summary("fedavg", 0, 0.5, None)]))
    assert "mean client" not in text
    assert BETTER not in text


def test_equal_as_written_is_not_better() -> None:
    assert BETTER not in markdown(aggregate([summary("ditto", 0, 0.5, 0.500001)])).splitlines()[2]


def test_an_error_is_better_where_it_is_smaller() -> None:
    found = {"algorithm": "ditto", "seed": 0, "rmse": 3.0, "client_rmse": {"mean": 3.0}, "personal_rmse": {"mean": 2.0}}
    assert f"2 {BETTER}" in markdown(aggregate([found]))


@pytest.mark.parametrize("width", range(60, 220, 7))
def test_numbers_are_whole_at_every_width(width: int) -> None:
    text = drawn(ROWS, width)
    assert max(map(len, text.splitlines())) <= width
    for number in (f"70.50 ± 0.71 {BETTER}", f"80.50 ± 0.71 {BETTER}", "60.00"):
        assert number in text
    titles = {str(column.header) for column in rich_table(ROWS, width).columns} - {"algorithm", "runs"}
    hidden = len({column.title for column in shown(ROWS)} - titles)
    said = " ".join(text.split())
    assert (f"; {hidden} more column" in said) == bool(hidden), "what is left out is said"


def test_sixty_columns() -> None:
    lines = [line.rstrip() for line in drawn(ROWS, 60).splitlines()]
    assert lines[:6] == [
        "algorithm          runs   mean client %      personal %",
        "ditto                 2    50.50 ± 0.71  70.50 ± 0.71 ✓",
        "fedprox: mu=0.001     2  80.50 ± 0.71 ✓    70.00 ± 0.00",
        "fedper                1               -           60.00",
        "fedavg                1           50.00               -",
        "mean ± sample standard deviation over seeds; ✓: the",
    ]
    assert "more columns in table.md, or on a wider terminal" in " ".join(lines)


def test_a_log_file_has_room_for_all() -> None:
    text = drawn(ROWS, None)
    assert "more columns" not in text
    for title in ("accuracy %", "best %", "AUROC", "worst client %", "mean client %", "personal %", "sent", "seconds"):
        assert title in text.splitlines()[1]


def test_methods_whose_personal_models_were_not_measured() -> None:
    assert unmeasured(ROWS) == (
        "No personal models were measured of fedavg: --set evaluate.personal=true does it for all."
    )
    assert unmeasured(ROWS[:3]) == unmeasured(ROWS[3:]) == ""
