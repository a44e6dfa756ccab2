"""Losses, scores, predictions and weights of every problem, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from accord.errors import ConfigError, DataError
from accord.problems import PROBLEMS, headlines

CLASSIFICATION, MULTILABEL, REGRESSION, TOKENS = (
    PROBLEMS[name] for name in ("classification", "multilabel", "regression", "tokens")
)


def numbers(tensor: torch.Tensor) -> list[float]:
    return [round(float(value), 6) for value in tensor]


def test_there_are_four() -> None:
    assert set(PROBLEMS) == {"classification", "multilabel", "regression", "tokens"}
    assert {name: p.higher_is_better for name, p in headlines().items()} == {"accuracy": True, "rmse": False}
    with pytest.raises(ConfigError, match=r"unknown task 'regresion'.*regression"):
        PROBLEMS["regresion"]


def test_classification() -> None:
    logits = torch.tensor([[math.log(3), 0.0], [0.0, 0.0], [float("nan"), 0.0]])
    y = torch.tensor([0, 1, 0])
    assert numbers(CLASSIFICATION.loss(logits[:2], y[:2])) == [round(math.log(4 / 3), 6), round(math.log(2), 6)]
    assert CLASSIFICATION.score(logits, y).tolist() == [1.0, 0.0, 0.0]
    assert CLASSIFICATION.predicted(logits[:2]).tolist() == [0, 0]
    shares = torch.tensor([[0.5, 0.5], [0.0, 1.0]])  # soft labels
    expected = [0.5 * math.log(4 / 3) + 0.5 * math.log(4), math.log(2)]
    assert numbers(CLASSIFICATION.loss(logits[:2], shares)) == [round(v, 6) for v in expected]


def test_multilabel() -> None:
    logits = torch.tensor([[0.0, math.log(3)], [-math.log(3), 5.0]])
    y = torch.tensor([[1, 1], [0, 0]])
    first = (math.log(2) + math.log(4 / 3)) / 2
    second = (math.log(4 / 3) + math.log(1 + math.exp(5))) / 2
    assert numbers(MULTILABEL.loss(logits, y)) == [round(first, 6), round(second, 6)]
    assert MULTILABEL.score(logits, y).tolist() == [0.5, 0.5]
    assert MULTILABEL.predicted(logits).tolist() == [[0, 1], [0, 1]]


def test_regression_of_one_number_and_of_several() -> None:
    outputs = torch.tensor([[1.0], [4.0]])
    for y in (torch.tensor([3.0, 4.0]), torch.tensor([[3.0], [4.0]])):
        assert REGRESSION.loss(outputs, y).tolist() == [4.0, 0.0]
        assert REGRESSION.reading(float(REGRESSION.score(outputs, y).mean())) == pytest.approx(math.sqrt(2))
    two = torch.tensor([[1.0, 2.0]])
    assert REGRESSION.loss(two, torch.tensor([[4.0, 6.0]])).tolist() == [12.5]
    assert REGRESSION.predicted(two) is two


def test_tokens_leave_out_what_has_no_label() -> None:
    outputs = torch.zeros(2, 3, 4)
    outputs[0, 0, 2] = math.log(5)  # right, with probability 5 / 8
    y = torch.tensor([[2, 1, -100], [-100, -100, 0]])
    expected = [(math.log(8 / 5) + math.log(4)) / 2, math.log(4)]
    assert numbers(TOKENS.loss(outputs, y)) == [round(v, 6) for v in expected]
    assert TOKENS.score(outputs, y).tolist() == [0.5, 1.0]  # of equal logits the first wins
    assert TOKENS.predicted(outputs).tolist() == [[2, 0, 0], [0, 0, 0]]
    moved = outputs.clone()
    moved[0, 2] += 100 * torch.randn(4)  # padding
    assert torch.equal(TOKENS.loss(moved, y), TOKENS.loss(outputs, y))


def test_weights_of_classes() -> None:
    y = torch.tensor([0, 0, 0, 2])
    weights = CLASSIFICATION.balanced(y, 3)
    assert weights == pytest.approx((4 / (2 * 3), 1.0, 4 / 2))  # class 1 does not occur
    weighted = CLASSIFICATION.weighted(weights, 3)
    logits = torch.randn(4, 3)
    plain = CLASSIFICATION.loss(logits, y)
    assert torch.allclose(weighted.loss(logits, y), plain * torch.tensor([2 / 3, 2 / 3, 2 / 3, 2.0]))
    assert float(torch.tensor([weights[c] for c in y]).mean()) == pytest.approx(1.0)
    assert weighted.plain == CLASSIFICATION
    assert weighted.mean_loss(logits, y) == pytest.approx(float(weighted.loss(logits, y).mean()))


def test_weights_of_labels() -> None:
    y = torch.tensor([[1, 0], [0, 0], [0, 0], [0, 0]])
    assert MULTILABEL.balanced(y, 2) == (3.0, 1.0)  # the second is never true
    weighted = MULTILABEL.weighted((3.0, 1.0), 2)
    outputs = torch.zeros(4, 2)
    assert numbers(weighted.loss(outputs, y)) == [round(v * math.log(2), 6) for v in (2.0, 1.0, 1.0, 1.0)]


@pytest.mark.parametrize("problem", [REGRESSION, TOKENS])
def test_no_classes_no_weights(problem) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=f"not for {problem.name}"):
        problem.balanced(torch.zeros(2), 1)
    with pytest.raises(ConfigError, match=f"not for {problem.name}"):
        problem.weighted((1.0,), 1)


def test_wrong_weights() -> None:
    for wrong in ((1.0,), (1.0, 0.0), (1.0, float("inf"))):
        with pytest.raises(ConfigError, match="a number above 0 for each of the 2 classes"):
            CLASSIFICATION.weighted(wrong, 2)


@pytest.mark.parametrize(
    ("name", "y", "outputs", "message"),
    [
        ("classification", torch.tensor([0, 2]), 2, "first is 2 at position 1; 2 classes allow 0 to 1"),
        ("classification", torch.tensor([[0, 1]]), 2, "one label per sample"),
        ("classification", torch.tensor([0.5]), 2, "whole numbers"),
        ("multilabel", torch.tensor([[0, 1]]), 3, "for each of 3 labels"),
        ("multilabel", torch.tensor([[0, 1], [2, 0]]), 2, "of 0 and 1 only, but 1 samples .* position 1"),
        ("regression", torch.tensor([1, 2]), 1, "must be real numbers for regression, not torch.int64"),
        ("regression", torch.tensor([1.0, float("nan")]), 1, "NaN or infinite, the first at position 1"),
        ("regression", torch.zeros(2, 3), 2, "regression of 2 numbers needs labels"),
        ("tokens", torch.tensor([1, 2]), 3, "a whole number for every position"),
        ("tokens", torch.tensor([[1, 3]]), 3, "first is 3 in sample 0"),
        ("tokens", torch.tensor([[1, -1]]), 3, "first is -1 in sample 0"),
        ("tokens", torch.tensor([[1, 2], [-100, -100]]), 3, "1 samples .* no label at any position"),
    ],
)
def test_labels_that_are_none(name: str, y: torch.Tensor, outputs: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        PROBLEMS[name].check(y, outputs, "train")


def test_labels_that_are_right() -> None:
    CLASSIFICATION.check(torch.tensor([0, 1]), 2, "train")
    MULTILABEL.check(torch.tensor([[0, 1], [0, 0]]), 2, "train")
    REGRESSION.check(torch.tensor([0.5, -1.0]), 1, "train")
    REGRESSION.check(torch.zeros(2, 3), 3, "train")
    TOKENS.check(torch.tensor([[0, -100], [1, 1]]), 2, "train")
