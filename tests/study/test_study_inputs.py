"""What a study's inputs are told apart by."""

from __future__ import annotations

from accord.study.inputs import _pieces


def test_a_set_is_the_same_in_any_order() -> None:
    names = {f"site {number}" for number in range(50)}
    kind, *pieces = (bytes(piece) for piece in _pieces(names))
    assert kind == b"set"
    assert pieces == [bytes(piece) for piece in _pieces(sorted(names))][1:]
