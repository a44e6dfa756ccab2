"""Paired differences, by hand; Student's t by its printed table."""

from __future__ import annotations

import math
from typing import Any

import pytest

from accord.errors import ConfigError
from accord.report.differences import differences, divided, student
from accord.report.formats import comma_separated, differences_markdown, latex
from accord.report.tables import aggregate

# Two-sided 95 %, as every printed table has it.
TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 9: 2.262, 10: 2.228, 30: 2.042}


@pytest.mark.parametrize(("freedom", "expected"), TABLE.items())
def test_students_t(freedom: int, expected: float) -> None:
    assert student(0.95, freedom) == pytest.approx(expected, abs=6e-4)


def test_other_levels_and_the_normal_limit() -> None:
    assert student(0.99, 4) == pytest.approx(4.604, abs=6e-4)
    assert student(0.5, 1) == pytest.approx(1.0)  # the quartile of Cauchy's distribution
    assert student(0.95, 5001) == pytest.approx(1.960, abs=1e-3)


def runs(**accuracies: Any) -> dict[tuple[str, int], dict[str, Any]]:
    return {
        (name, seed): {"algorithm": name, "seed": seed, "accuracy": value}
        for name, values in accuracies.items()
        for seed, value in (values.items() if isinstance(values, dict) else enumerate(values))
    }


def test_pairs_have_the_same_seed() -> None:
    found = differences(runs(a=[0.80, 0.70, 0.90], b=[0.81, 0.73, 0.92]))
    assert found is not None
    (row,) = found.rows
    # a - b is -0.01, -0.03, -0.02: mean -0.02, sample deviation 0.01; t with two degrees of freedom is 4.303
    half = 4.3027 * 0.01 / math.sqrt(3)
    assert (row.algorithm, row.baseline, row.seeds) == ("a", "b", 3)
    assert row.mean == pytest.approx(-0.02)
    assert (row.low, row.high) == (pytest.approx(-0.02 - half, abs=1e-5), pytest.approx(-0.02 + half, abs=1e-5))
    assert not row.told_apart, "-4.48 to +0.48 points"
    assert found.cells(row) == ["-2.00", "-4.48 to +0.48", "3", "no"]
    assert "the best, b" in found.title
    assert "| a | -2.00 | -4.48 to +0.48 | 3 | no |" in differences_markdown(found)


def test_to_a_baseline_over_the_seeds_both_have() -> None:
    found = differences(runs(a={0: 0.5, 1: 0.6, 7: 0.1}, b={0: 0.7, 1: 0.8, 9: 0.99}), baseline="a")
    assert found is not None
    (row,) = found.rows
    assert (row.mean, row.seeds) == (pytest.approx(0.2), 2)
    assert row.told_apart, "the pairs differ by 0.2 each"
    assert found.title == "difference to a, in accuracy %"


def test_one_seed_has_no_interval_and_says_so() -> None:
    found = differences(runs(a=[0.5], b=[0.6]))
    assert found is not None
    (row,) = found.rows
    assert (row.low, row.high, row.told_apart) == (None, None, False)
    assert found.cells(row) == ["-10.00", "-", "1", "-"]
    assert "at least 2 seeds" in found.remark


def test_nothing_to_compare() -> None:
    assert differences(runs(a=[0.5, 0.6])) is None
    assert differences({}) is None
    assert differences(runs(a={0: 0.5}, b={1: 0.5})) is None, "no seed in common"


def test_other_data_has_a_baseline_of_its_own() -> None:
    found = differences(
        runs(**{
            "a: partition.alpha=1": [0.9, 0.9], "b: mu=2, partition.alpha=1": [0.8, 0.8],
            "a: partition.alpha=9": [0.3, 0.3], "b: mu=2, partition.alpha=9": [0.4, 0.4],
        })
    )  # fmt: skip
    assert found is not None
    assert [(row.algorithm, row.baseline) for row in found.rows] == [
        ("b: mu=2, partition.alpha=1", "a: partition.alpha=1"), ("a: partition.alpha=9", "b: mu=2, partition.alpha=9"),
    ]  # fmt: skip
    named = differences(runs(**{"a: partition.alpha=1": [1, 1], "b: partition.alpha=1": [0, 0]}), baseline="b")
    assert named is not None
    assert named.rows[0].mean == 1
    assert divided("a") == ("a", "")


def test_lower_may_be_better_and_bad_requests() -> None:
    slow = {key: {**value, "seconds": 1 + key[1] + len(key[0])} for key, value in runs(a=[1, 1], bb=[1, 1]).items()}
    found = differences(slow, by="seconds")
    assert found is not None
    assert (found.rows[0].algorithm, found.rows[0].baseline, found.rows[0].mean) == ("bb", "a", 1)
    with pytest.raises(ConfigError, match="baseline 'c' is not among"):
        differences(slow, baseline="c")
    with pytest.raises(ConfigError, match=r"no column is called 'acuracy'. Did you mean 'accuracy'"):
        differences(slow, by="acuracy")


def test_latex_and_csv() -> None:
    rows = aggregate(runs(**{"fed_a: x=[1]": [0.5, 0.7], "b": [0.25]}).values())
    text = latex(rows)
    # 0.5 and 0.7: mean 60 %, sample deviation 14.14 points
    assert r"fed\_a: x=[1] & 2 & \textbf{60.00 $\pm$ 14.14} \\" in text
    assert r"algorithm & runs & accuracy \% \\" in text
    assert "b & 1 & 25.00" in text
    lines = comma_separated(rows).splitlines()
    assert lines[0] == "algorithm,runs,accuracy,accuracy_std"
    assert lines[2] == "b,1,0.25,"
    name, count, mean, deviation = lines[1].split(",")
    assert (name, count, float(mean)) == ("fed_a: x=[1]", "2", 0.6)
    assert float(deviation) == pytest.approx(0.1 * math.sqrt(2))


def test_what_it_comes_to_in_a_sentence() -> None:
    found = differences(runs(a=[0.80, 0.70, 0.90], b=[0.81, 0.73, 0.92], c=[0.5, 0.9, 0.7]))
    assert found is not None
    # b has the best mean. a - b is -0.02 with a half width of 0.025, c - b is -0.12 and wide: neither is told apart
    assert found.sentence == "Best in accuracy %: b. Not told apart from it by these seeds: a (-2.00), c (-12.00)."
    clear = differences(runs(a=[0.50, 0.51], b=[0.80, 0.81]))
    assert clear is not None
    assert clear.sentence == "Best in accuracy %: b. Behind it by more than the seeds explain: a (-30.00)."
    named = differences(runs(a=[0.5, 0.6], b=[0.8, 0.9]), baseline="a")
    assert named is not None
    assert named.sentence == ""
