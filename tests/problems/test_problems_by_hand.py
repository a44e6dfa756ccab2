"""Every problem on a handful of numbers: what labels may be, losses, scores, answers and weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from accord.errors import ConfigError, DataError
from accord.problems import PROBLEMS, headlines, leading
from accord.problems.problem import constant, is_whole

SINGLE, SEVERAL, AMOUNTS, TOKENS = (PROBLEMS[name] for name in ("classification", "multilabel", "regression", "tokens"))
T = torch.tensor
LN2 = math.log(2)


@pytest.mark.parametrize(
    ("name", "y", "outputs"),
    [
        ("classification", T([0, 2]), 3),
        ("classification", T([], dtype=torch.int64), 1),
        ("multilabel", T([[0, 1], [1, 1]]), 2),
        ("multilabel", T([[0.0], [1.0]]), 1),
        ("regression", T([0.5, 2.0]), 1),
        ("regression", T([[0.5, 2.0]]), 2),
        ("regression", T([[0.5], [2.0]]), 1),
        ("tokens", T([[0, -100], [2, 1]]), 3),
    ],
)
def test_labels_that_are_taken(name: str, y: Tensor, outputs: int) -> None:
    PROBLEMS[name].check(y, outputs, "train")


@pytest.mark.parametrize(
    ("name", "y", "outputs", "words"),
    [
        ("classification", T([[0]]), 3, r"the test part needs one label per sample; got labels of shape \(1, 1\)"),
        ("classification", T([0.0]), 3, "whole numbers, not torch.float32"),
        ("classification", T([True]), 3, "whole numbers, not torch.bool"),
        (
            "classification",
            T([0, 3, -1]),
            3,
            "2 labels of the test part .* first is 3 at position 1; 3 classes .* 0 to 2",
        ),
        ("classification", T([-1, 0]), 3, "1 labels .* first is -1 at position 0"),
        ("multilabel", T([0, 1]), 2, r"shape \(2,\)"),
        ("multilabel", T([[0, 1]]), 3, r"each of 3 labels of a sample, \[N, 3\]"),
        (
            "multilabel",
            T([[0, 1], [0, 2], [3, 0]]),
            2,
            r"2 samples of the test part have others, the first at position 1: \[0, 2\]",
        ),
        ("regression", T([[[1.0]]]), 1, r"labels \[N\]; those of the test part have shape \(1, 1, 1\)"),
        ("regression", T([1.0]), 2, r"regression of 2 numbers needs labels \[N, 2\]"),
        ("regression", T([[1.0, 2.0]]), 1, r"needs labels \[N\]"),
        ("regression", T([1]), 1, "must be real numbers for regression, not torch.int64"),
        ("regression", T([[1.0, math.nan], [math.inf, 0.0], [0.0, 0.0]]), 2, "2 labels .* the first at position 0"),
        ("tokens", T([0]), 3, r"have shape \(1,\) and type torch.int64"),
        ("tokens", T([[0.5]]), 3, "type torch.float32"),
        (
            "tokens",
            T([[0, 1], [3, -1]]),
            3,
            "2 labels of the test part are no class numbers, the first is 3 in sample 1; 3",
        ),
        ("tokens", T([[0, 1], [-100, -100]]), 3, "1"),
    ],
)
def test_labels_that_are_refused(name: str, y: Tensor, outputs: int, words: str) -> None:
    with pytest.raises(DataError, match=words):
        PROBLEMS[name].check(y, outputs, "test")


def test_one_class() -> None:
    outputs, y = T([[0.0, 0.0], [0.0, math.log(3.0)]]), T([0, 1])
    # ln 2; -ln(3/4)
    assert SINGLE.loss(outputs, y).tolist() == pytest.approx([LN2, math.log(4 / 3)])
    assert float(SINGLE.mean_loss(outputs, y)) == pytest.approx((LN2 + math.log(4 / 3)) / 2)
    assert SINGLE.loss(outputs[:1], T([[0.5, 0.5]])).tolist() == pytest.approx([LN2])
    weighted = SINGLE.weighted([2, 1.0], 2)
    assert weighted.weights == (2.0, 1.0)
    assert weighted.loss(outputs, y).tolist() == pytest.approx([2 * LN2, math.log(4 / 3)])
    # the mean of the weighted losses, and not torch's weighted mean, which divides by 3
    assert float(weighted.mean_loss(outputs, y)) == pytest.approx((2 * LN2 + math.log(4 / 3)) / 2)
    assert weighted.plain == SINGLE
    assert SINGLE.plain is SINGLE
    assert SINGLE.predicted(outputs).tolist() == [0, 1], "of equals the first"
    assert SINGLE.score(T([[1.0, 0.0], [1.0, 0.0], [math.nan, 0.0]]), T([0, 1, 0])).tolist() == [1.0, 0.0, 0.0]
    assert SINGLE.shape((), 7) == (7,)
    # 4 samples of 2 of 3 classes: 4 / (2 * 3), 4 / (2 * 1); the class that is not there counts as 1
    assert SINGLE.balanced(T([0, 0, 0, 1]), 3) == pytest.approx((2 / 3, 2.0, 1.0))


def test_several_labels() -> None:
    outputs, y = T([[0.0, math.log(3.0)], [-1.0, 2.0]]), T([[1, 0], [0, 1]])
    each = [[LN2, math.log(4.0)], [math.log(1 + math.exp(-1)), math.log(1 + math.exp(-2))]]
    assert SEVERAL.loss(outputs, y).tolist() == pytest.approx([sum(row) / 2 for row in each])
    weighted = SEVERAL.weighted([3.0, 5.0], 2)  # of what is true alone
    assert weighted.loss(outputs, y).tolist() == pytest.approx(
        [(3 * each[0][0] + each[0][1]) / 2, (each[1][0] + 5 * each[1][1]) / 2]
    )
    assert SEVERAL.predicted(T([[0.0, 0.1, -0.1]])).tolist() == [[0, 1, 0]]
    assert SEVERAL.score(T([[0.0, 0.1], [math.nan, -1.0]]), T([[0, 1], [0, 0]])).tolist() == [1.0, 0.5]
    assert SEVERAL.shape((), 3) == (3,)
    # the first label is true of 1 of 3, the second of all, the third of none
    assert SEVERAL.balanced(T([[1, 1, 0], [0, 1, 0], [0, 1, 0]]), 3) == (2.0, 1.0, 1.0)
    assert float(SEVERAL.mean_loss(outputs, y)) == pytest.approx(sum(sum(row) for row in each) / 4)


def test_amounts() -> None:
    outputs, y = T([[1.0, 3.0], [0.0, 0.0]]), T([[0.0, 1.0], [2.0, 0.0]])
    assert AMOUNTS.loss(outputs, y).tolist() == [2.5, 2.0]
    assert AMOUNTS.score(outputs, y).tolist() == [2.5, 2.0]
    assert AMOUNTS.score(outputs, y).dtype == torch.float64
    assert AMOUNTS.loss(T([[1.0], [3.0]]), T([0.0, 1.0])).tolist() == [1.0, 4.0]
    assert AMOUNTS.predicted(outputs) is outputs
    assert AMOUNTS.reading(2.25) == 1.5
    assert SINGLE.reading(0.25) == 0.25
    assert AMOUNTS.shape((4,), 2) == (2,)


def test_a_label_per_position() -> None:
    none = -100
    outputs = T([[[0.0, 0.0], [0.0, math.log(3.0)], [9.0, 0.0]], [[0.0, 0.0], [1.0, 0.0], [math.nan, 0.0]]])
    y = T([[0, 1, none], [none, 1, 0]])
    losses = [(LN2 + math.log(4 / 3)) / 2, math.nan]
    assert TOKENS.loss(outputs, y)[0].item() == pytest.approx(losses[0])
    assert TOKENS.predicted(outputs)[0].tolist() == [0, 1, 0]
    assert TOKENS.score(outputs, y).tolist() == [1.0, 0.0], "nothing is right about NaN"
    assert TOKENS.shape((5,), 2) == (5, 2)


def test_weights_that_are_refused() -> None:
    wrong: list[tuple[Any, int]] = [
        ([1.0], 2),
        ([1.0, 0.0], 2),
        ([1.0, -1.0], 2),
        ([1.0, math.inf], 2),
        ([1.0, math.nan], 2),
    ]
    for weights, outputs in wrong:
        with pytest.raises(ConfigError, match=f"a number above 0 for each of the {outputs} classes"):
            SINGLE.weighted(weights, outputs)
    for problem in (AMOUNTS, TOKENS):
        with pytest.raises(ConfigError, match=f"not for {problem.name}"):
            problem.weighted([1.0], 1)
        with pytest.raises(ConfigError, match=f"not for {problem.name}"):
            problem.balanced(T([0]), 1)


def test_what_leads() -> None:
    assert {name: problem.name for name, problem in headlines().items()} == {
        "accuracy": "classification",
        "rmse": "regression",
    }
    assert leading({}) == "accuracy"
    assert leading({"judged_by": "personal_rmse"}) == "rmse"
    assert leading({"judged_by": "rmse"}) == "rmse"


def test_whole_numbers_and_constants() -> None:
    kinds = {torch.int64: True, torch.uint8: True, torch.bool: False, torch.float32: False, torch.complex64: False}
    for dtype, whole in kinds.items():
        assert is_whole(torch.zeros(1, dtype=dtype)) is whole
    first = constant((1.0, 2.0), torch.float64, torch.device("cpu"))
    assert first.tolist() == [1.0, 2.0]
    assert constant((1.0, 2.0), torch.float64, torch.device("cpu")) is first, "made once"


def test_what_every_problem_says_of_itself() -> None:
    """Name, headline, its title, whether more is better, whether it is a share; what a network gives numbers for."""
    told = {
        p: (p.name, p.headline, p.title, p.higher_is_better, p.share, p.output)
        for p in (SINGLE, SEVERAL, AMOUNTS, TOKENS)
    }
    assert told == {
        SINGLE: ("classification", "accuracy", "accuracy", True, True, ("class", "classes")),
        SEVERAL: ("multilabel", "accuracy", "accuracy", True, True, ("label", "labels")),
        AMOUNTS: ("regression", "rmse", "RMSE", False, False, ("number", "numbers")),
        TOKENS: ("tokens", "accuracy", "accuracy", True, True, ("class", "classes")),
    }
    assert [p.one_class for p in told] == [True, False, False, False]
    assert [p.real_labels for p in told] == [False, False, True, False]
    assert [p.weighs for p in told] == [True, True, False, False]
    assert [p.weights for p in told] == [(), (), (), ()]
    assert [p.worth(0.25) for p in told] == [0.25, 0.25, -0.25, 0.25]


def test_rows_without_a_label_are_worth_nothing() -> None:
    outputs, y = torch.zeros(2, 2, 2), T([[-100, -100], [0, 0]])
    assert TOKENS.loss(outputs, y).tolist() == pytest.approx([0.0, LN2])
    assert TOKENS.score(outputs, y).tolist() == [0.0, 1.0]


def test_weights_stay_where_labels_are_many() -> None:
    many = [1.0] * 11
    with pytest.raises(ConfigError, match=r"lists 11 numbers, \[1\.0(, 1\.0){9}\]: .* for each of the 12 labels"):
        SEVERAL.weighted(many, 12)
    assert SEVERAL.weighted([1, 2], 2).plain == SEVERAL
    with pytest.raises(DataError, match=r"at position 0: \[2(, 0){9}\]$"):
        SEVERAL.check(T([[2] + [0] * 10]), 11, "train")
