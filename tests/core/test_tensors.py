"""Named sets of tensors, and terms of a loss: every operation by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accord.core import tensors
from accord.core.tensors import num_bytes
from accord.core.view import Term, View

A = {"w": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0])}
B = {"w": torch.tensor([10.0, 20.0]), "b": torch.tensor([-1.0])}


def lists(tree: Any) -> dict[str, Any]:
    return {name: tensor.tolist() for name, tensor in tree.items()}


def test_bytes_of_trees() -> None:
    trees = {
        "model": {"w": torch.zeros(2, 3), "b": torch.zeros(3, dtype=torch.float16)},  # 24 + 6
        "counts": {"n": torch.tensor(1)},  # 8
        "empty": {},
    }
    assert num_bytes(trees) == 38
    assert num_bytes({}) == 0


def test_arithmetic() -> None:
    assert lists(tensors.add(A, B)) == {"w": [11, 22], "b": [2]}
    assert lists(tensors.add(A, B, 0.5)) == {"w": [6, 12], "b": [2.5]}
    assert lists(tensors.subtract(A, B)) == {"w": [-9, -18], "b": [4]}
    assert lists(tensors.scale(A, 3.0)) == {"w": [3, 6], "b": [9]}
    assert lists(tensors.zeros_like(A)) == {"w": [0, 0], "b": [0]}
    assert float(tensors.dot(A, B)) == 10 + 40 - 3
    assert float(tensors.squared_norm(A)) == 1 + 4 + 9
    assert tensors.flatten(A).tolist() == [3, 1, 2], "by name"
    copy = tensors.clone(A)
    copy["w"].zero_()
    assert A["w"].tolist() == [1, 2]
    totals = [torch.tensor([1.0]), torch.tensor([2.0])]
    tensors.add_to(totals, [torch.tensor([10.0]), torch.tensor([20.0])])
    assert [t.tolist() for t in totals] == [[11], [22]]


def test_names_are_sorted() -> None:
    trees = {"z": dict(A), "a": {"y": A["w"], "x": A["b"]}}
    assert list(tensors.ordered(A)) == ["b", "w"]
    assert [(name, list(tree)) for name, tree in tensors.ordered_trees(trees).items()] == [
        ("a", ["x", "y"]),
        ("z", ["b", "w"]),
    ]
    assert list(tensors.join(trees)) == ["a/x", "a/y", "z/b", "z/w"]
    assert tensors.join(trees)["a/y"] is A["w"]


def test_sums_run_in_the_order_of_the_names() -> None:
    """In single precision 1e8 - 1e8 + 1 is 1, and 1e8 + 1 - 1e8 is 0."""
    ones = {name: torch.ones(1) for name in "acb"}
    values = {"a": torch.tensor([1e8]), "c": torch.tensor([1.0]), "b": torch.tensor([-1e8])}
    assert float(tensors.dot(values, ones)) == 1.0
    assert float(tensors.dot(ones, values)) == 1.0
    assert tensors.flatten(values).tolist() == [1e8, -1e8, 1.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_value_that_is_no_number_is_found(bad: float) -> None:
    values = torch.ones(5)
    values[3] = bad
    assert not tensors.finite({"model": A, "more": {"x": values}})


def test_finite_values_are_found_so() -> None:
    assert tensors.finite({})
    assert tensors.finite({"model": A, "n": {"n": torch.tensor(2)}})
    assert tensors.finite({"huge": {"x": torch.full((4,), 3e38)}}), "although their sum overflows"
    both = torch.tensor([float("inf"), -float("inf")])
    assert not tensors.finite({"x": {"x": both}})


def view(weight: list[float]) -> View:
    batch: Any = type("Rows", (), {"weight": torch.tensor(weight)})
    nothing: Any = None
    return View(nothing, nothing, nothing, {}, nothing, batch)


def test_terms_of_a_loss() -> None:
    """Means leave padding out; terms are added, subtracted and multiplied by numbers."""
    seen = view([1.0, 1.0, 0.0, 0.0])
    mean = seen.mean(torch.tensor([2.0, 4.0, 100.0, 1000.0]))
    assert float(mean.value) == 3
    whole = seen.whole(torch.tensor(10.0))
    assert float((mean + whole).value) == 13
    assert float((mean - whole).value) == -7
    assert float((0.5 * whole).value) == 5
    assert isinstance(mean + whole, Term)
    with pytest.raises(ValueError, match="one value per sample"):
        seen.mean(torch.tensor(3.0))
