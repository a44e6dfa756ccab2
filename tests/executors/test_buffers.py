"""Buffers at fixed addresses, and what may be laid in them."""

from __future__ import annotations

import pytest
import torch

from accord.executors.gpu.buffers import Buffers, MisfitError, leaves, spec, stacked

CPU = torch.device("cpu")


def test_values_are_copied_to_the_same_addresses() -> None:
    fixed = Buffers(CPU)
    fixed.load({"w": {"a": torch.ones(2)}, "n": 3})
    where = fixed.value["w"]["a"].data_ptr()
    fixed.load({"w": {"a": torch.full((2,), 5.0)}, "n": 3})
    assert fixed.value["w"]["a"].tolist() == [5.0, 5.0]
    assert fixed.value["w"]["a"].data_ptr() == where
    assert fixed.moved == 0


def test_what_was_loaded_is_not_written_to() -> None:
    mine = torch.ones(2)
    fixed = Buffers(CPU)
    fixed.load({"a": mine})
    fixed.value["a"].zero_()
    assert mine.tolist() == [1.0, 1.0]


def test_one_tensor_under_two_names_stays_one() -> None:
    shared = torch.ones(2)
    fixed = Buffers(CPU)
    fixed.load({"train": {"w": shared}, "active": {"w": shared}})
    assert fixed.value["train"]["w"] is fixed.value["active"]["w"]


def test_rows_of_a_larger_client_make_room_for_the_largest() -> None:
    fixed = Buffers(CPU)
    fixed.load({"cache": torch.arange(3.0), "w": torch.zeros(2)}, most=7)
    fixed.load({"cache": torch.arange(5.0), "w": torch.ones(2)}, most=7)
    assert fixed.moved == 1
    assert len(fixed.value["cache"]) == 7
    assert fixed.like(5)["cache"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    fixed.load({"cache": torch.tensor([9.0, 8.0]), "w": torch.ones(2)}, most=7)
    assert fixed.moved == 1
    assert fixed.like(2)["cache"].tolist() == [9.0, 8.0]
    assert fixed.like(2)["w"].tolist() == [1.0, 1.0]


def test_a_smaller_client_first_moves_the_buffer_too() -> None:
    fixed = Buffers(CPU)
    fixed.load({"cache": torch.arange(5.0)}, most=7)
    fixed.load({"cache": torch.arange(3.0)}, most=7)
    assert fixed.like(3)["cache"].tolist() == [0.0, 1.0, 2.0]


def test_specs_differ_by_structure_shape_and_plain_values_but_not_by_examples() -> None:
    value = {"w": torch.zeros(4, 2), "cache": torch.zeros(6, 3), "flag": True}
    other = {"w": torch.zeros(4, 2), "cache": torch.zeros(9, 3), "flag": True}
    assert spec(value, 6) == spec(other, 9)
    assert spec(value, 6) != spec({**other, "flag": False}, 9)
    assert spec(value, 6) != spec({**other, "w": torch.zeros(5, 2)}, 9)
    assert spec(value, 6) != spec({**other, "w": torch.zeros(4, 2, dtype=torch.float64)}, 9)
    assert spec(value, 6) != spec({**other, "cache": torch.zeros(9, 4)}, 9)
    assert spec(value, 6) != spec({**other, "cache": torch.zeros(9, 3, dtype=torch.int64)}, 9)
    assert spec(value, 6) != spec({k: v for k, v in other.items() if k != "cache"}, 9)


def test_settle_brings_back_tensors_that_took_a_buffers_place() -> None:
    fixed = Buffers(CPU)
    fixed.load({"a": torch.zeros(2), "b": torch.zeros(1)})
    seen = fixed.fresh()
    seen["a"] = torch.ones(2)
    seen["b"].add_(3)
    fixed.settle(seen)
    assert dict(leaves(fixed.value))["/a"].tolist() == [1.0, 1.0]
    assert dict(leaves(fixed.value))["/b"].tolist() == [3.0]


def test_settle_lets_two_buffers_change_places() -> None:
    fixed = Buffers(CPU)
    fixed.load({"a": torch.zeros(2), "b": torch.ones(2)})
    seen = fixed.fresh()
    seen["a"], seen["b"] = seen["b"], seen["a"]
    fixed.settle(seen)
    assert fixed.value["a"].tolist() == [1.0, 1.0]
    assert fixed.value["b"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "change", [{"new": torch.zeros(1)}, {"a": torch.zeros(3)}, {"flag": False}], ids=["key", "shape", "value"]
)
def test_settle_refuses_what_a_recorded_step_cannot_repeat(change: dict[str, object]) -> None:
    fixed = Buffers(CPU)
    fixed.load({"a": torch.zeros(2), "flag": True})
    with pytest.raises(MisfitError):
        fixed.settle({**fixed.fresh(), **change})


def test_one_may_be_laid_in_a_stack_alone() -> None:
    fixed = Buffers(CPU)
    fixed.load({"a": {"w": torch.tensor([[1.0, 2.0]])}, "word": "x"})
    whole = stacked([fixed], 5)
    assert whole["a"]["w"].tolist() == [[[1.0, 2.0]]], "alike everywhere: no more rows than it had"
    assert whole["word"] == "x"
    assert fixed.value["a"]["w"].data_ptr() == whole["a"]["w"].data_ptr()
    assert fixed.moved == 1


def test_a_stack_has_room_where_one_of_them_has_rows() -> None:
    made = []
    for count in (1, 3, 3):
        fixed = Buffers(CPU)
        fixed.load({"rows": torch.full((count,), float(count)), "w": torch.full((2,), float(count))})
        made.append(fixed)
    whole = stacked(made, 4)
    assert whole["rows"].shape == (3, 4)
    assert whole["w"].tolist() == [[1, 1], [3, 3], [3, 3]]
    for fixed, count in zip(made, (1, 3, 3), strict=True):
        assert fixed.like(count)["rows"].tolist() == [float(count)] * count
        assert fixed.like(count)["w"].tolist() == [float(count)] * 2
        assert fixed.moved == 1
    made[0].load({"rows": torch.tensor([7.0, 8.0]), "w": torch.zeros(2)}, 4)
    assert whole["rows"][0, :2].tolist() == [7.0, 8.0], "what is loaded later lies in the stack"
    assert made[0].moved == 1
