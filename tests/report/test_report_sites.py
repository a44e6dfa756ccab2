"""The table of sites: which are shown, in what order, how wide it is, and what is said below it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from accord.measures.sites import Sites
from accord.report.sites import chosen, remarks, sites_table, worst_site

GLOBAL, OWN = {"judged_by": "accuracy", "accuracy": 0.5}, {"judged_by": "personal_accuracy", "accuracy": 0.5}


def sites(**columns: Any) -> Sites:
    count = len(next(iter(columns.values())))
    return Sites(
        {
            "site": [f"site {k}" for k in range(count)],
            "client": list(range(count)),
            "samples": [10 * (k + 1) for k in range(count)],
            "test_samples": [k + 1 for k in range(count)],
            "class": ["ill"] * count,
            "class_share": [0.375] * count,
            **columns,
        }
    )


def drawn(table: Sites, summary: dict[str, Any], width: int) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=width).print(sites_table(table, summary, width))
    return output.getvalue().splitlines()


def test_the_worst_first_and_those_without_test_data_last() -> None:
    found = sites(accuracy=[0.75, None, 0.25, 0.5], personal_accuracy=[0.5, None, 1.0, 0.75])
    assert chosen(found, GLOBAL) == ([2, 3, 0, 1], 0)
    assert chosen(found, OWN) == ([0, 3, 2, 1], 0)
    assert worst_site(found, GLOBAL) == (
        "Worst site: site 2, accuracy 25.00 % on 3 test samples (the mean over 3 sites is 50.00 %)."
    )
    assert worst_site(found, OWN) == (
        "Worst site: site 0, personal accuracy 50.00 % on 1 test sample (the mean over 3 sites is 75.00 %)."
    )
    lines = drawn(found, GLOBAL, 100)
    assert [title.strip() for title in lines[1].split("┃")[1:-1]] == [
        "site",
        "samples",
        "ill %",
        "global %",
        "personal %",
    ]
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines[3:-1]]
    assert cells == [
        ["site 2", "30", "38", "25.00", "100.00"],
        ["site 3", "40", "38", "50.00", "75.00"],
        ["site 0", "10", "38", "75.00", "50.00"],
        ["site 1", "20", "38", "-", "-"],
    ]


def test_of_an_error_the_largest_is_the_worst() -> None:
    found = sites(rmse=[2.0, 4.5], label_mean=[10.0, None])
    summary = {"judged_by": "rmse", "rmse": 3.0}
    assert (
        worst_site(found, summary) == "Worst site: site 1, RMSE 4.5 on 2 test samples (the mean over 2 sites is 3.25)."
    )
    lines = drawn(found, summary, 100)
    assert [title.strip() for title in lines[1].split("┃")[1:-1]] == ["site", "samples", "mean label", "global"]
    assert [cell.strip() for cell in lines[3].split("│")[1:-1]] == ["site 1", "20", "-", "4.5"]


def test_a_long_federation_shows_both_ends_and_says_where_the_rest_is() -> None:
    found = sites(accuracy=[k / 100 for k in range(50)] + [None])
    some, rest = chosen(found, GLOBAL)
    assert some == [*range(10), 47, 48, 49]
    assert remarks(found, GLOBAL, Path("runs/x")) == [
        f"The worst and the best sites; {rest} more in runs/x/sites.csv.",
        "Worst site: site 0, accuracy 0.00 % on 1 test sample (the mean over 50 sites is 24.50 %).",
    ]
    assert rest == 38
    few = sites(accuracy=[0.5] * 2 + [None] * 20)
    assert chosen(few, GLOBAL) == ([1, 0, *range(2, 10)], 12), "equals: more test samples first"


def test_what_is_said_where_there_is_nothing_to_compare() -> None:
    assert worst_site(sites(accuracy=[0.5]), GLOBAL) == ""
    assert worst_site(sites(accuracy=[None, None]), GLOBAL) == ""
    assert worst_site(sites(accuracy=[0.5, 0.5]), GLOBAL) == "All 2 sites have the same accuracy, 50.00 %."
    assert remarks(sites(personal_accuracy=[0.5, 1.0]), OWN, Path("x"))[0] == (
        "The global model was not measured at the sites: --set evaluate.clients=true does it."
    )
    assert len(remarks(sites(personal_accuracy=[0.5, 1.0]), {**OWN, "accuracy": None}, Path("x"))) == 1


@pytest.mark.parametrize("width", [60, 80])
def test_narrow_terminals_show_every_number_whole(width: int) -> None:
    names = ["Centre hospitalier universitaire de Lyon-Sud", "Ålesund\nsjukehus", "[red]Bern[/red]"]
    found = sites(
        site=names,
        accuracy=[0.123456, 0.5, 1.0],
        personal_accuracy=[0.98765, 0.5, None],
        **{"class": ["pneumonia, viral", "healthy", "healthy"]},
    )
    lines = drawn(found, GLOBAL, width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for number in ("12.35", "98.77", "50.00", "100.00", "10", "20", "30"):
        assert number in text
    assert "[red]Bern[/red]" in text
    assert any("12.35" in line and "98.77" in line for line in lines), "a site is one line"
