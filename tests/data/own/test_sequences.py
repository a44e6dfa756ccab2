"""Sequences of different lengths, padded by hand."""

from __future__ import annotations

from typing import Any

import pytest

from accord.data.own.sequences import from_sequences, padded, padded_labels
from accord.errors import DataError


def test_ids_are_padded_with_zeros_and_cut_and_the_mask_says_where_they_end() -> None:
    ids, mask = padded([[5, 6], [7, 8, 9, 4], [3]], 3, "x")
    assert ids.tolist() == [[5, 6, 0], [7, 8, 9], [3, 0, 0]]
    assert mask.tolist() == [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]


def test_labels_of_positions_are_padded_with_none_and_cut() -> None:
    found = padded_labels([[1, -100], [2, 3, 4, 5]], [[5, 6], [7, 8, 9, 4]], 3, "y")
    assert found.tolist() == [[1, -100, -100], [2, 3, 4]]
    assert padded_labels([1, 0], [[5, 6], [7]], 3, "y") == [1, 0], "a label per sample stays"


@pytest.mark.parametrize("sequence", [[], [[1, 2]], [0.5], 3])
def test_what_is_no_sequence_of_ids_is_named_by_its_place(sequence: Any) -> None:
    with pytest.raises(DataError, match="x 1"):
        padded([[1], sequence], 2, "x")


@pytest.mark.parametrize("labels", [[1], [1, 2, 3], [0.5, 1.0]])
def test_labels_must_be_one_for_each_position(labels: Any) -> None:
    with pytest.raises(DataError, match="y 0 must be a whole number for each of the 2 positions"):
        padded_labels([labels], [[5, 6]], 2, "y")


def test_the_longest_of_both_parts_gives_the_length() -> None:
    train, test = ([[1], [2, 3], [1], [2]], [0, 1, 0, 1]), ([[4, 4, 4]], [1])
    data = from_sequences(*train, test=test)
    assert data.fields is not None
    assert data.fields["tokens"].shape == data.fields["mask"].shape == (3,)
    assert data.fields.unpacked(data.test.x)["tokens"].tolist() == [[4, 4, 4]]
    assert data.fields.unpacked(data.train.x)["mask"].tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 0, 0]]
    short = from_sequences(*train, test=test, length=2)
    assert short.fields is not None
    assert short.fields["tokens"].shape == (2,)
    for wrong in (test[0], (test[0],), (*test, None, None)):
        with pytest.raises(DataError, match=r"test must be \(x, y\)"):
            from_sequences(*train, test=wrong)  # type: ignore[arg-type]
