"""Settings written as text, and the edges of what fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from accord.settings import Misfit, Range, Word, check, fit, settings_of
from accord.settings.text import parse_value
from accord.settings.values import plain, show


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("True", True),
        ("FALSE", False),
        ("fedprox", "fedprox"),
        ("[a, 2]", ["a", 2]),
        ('["a", 2]', ["a", 2]),
        ("[]", []),
        ("[a,,b]", ["a", "b"]),
        ("[a, b, ]", ["a", "b"]),
        ("[a", "[a"),
        ("a]", "a]"),
        ("1\nother = 2", "1\nother = 2"),
        ("truely", "truely"),
    ],
)
def test_values_from_text(text: str, value: object) -> None:
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


def test_brackets_within_brackets_are_read_twenty_deep() -> None:
    read: Any = parse_value("[" * 20 + "]" * 20)
    depth = 0
    while isinstance(read, list):
        depth, read = depth + 1, read[0] if read else None
    assert depth == 20
    assert parse_value("[" * 21 + "]" * 21) == "[" * 21 + "]" * 21
    table: Any = 1
    for _ in range(10):
        table = [{"a": table}]
    assert parse_value("[{a = " * 10 + "1" + "}]" * 10) == table
    deeper = "[{a = " * 11 + "1" + "}]" * 11
    assert parse_value(deeper) == deeper


def test_a_list_may_be_wanted_as_any_sequence() -> None:
    assert fit(Sequence[int], [1, 2]) == (1, 2)
    assert fit(tuple[int, ...], [1, 2]) == (1, 2)
    assert fit(list[int], (1, 2)) == [1, 2]
    for kind in (dict[str, int], set[int], bytes):
        with pytest.raises(TypeError, match="a setting cannot have the type"):
            fit(kind, [1])


def test_whole_numbers_are_those_of_64_bits() -> None:
    assert fit(int, 2**63 - 1) == 2**63 - 1
    assert fit(int, -(2**63)) == -(2**63)
    for value in (2**63, -(2**63) - 1):
        with pytest.raises(Misfit):
            fit(int, value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**63 - 1, "9223372036854775807"),
        (2**63, "a number of more than 64 bits"),
        (-(2**63) - 1, "a number of more than 64 bits"),
        (10**5000, "a number of more than 64 bits"),
        (True, "true"),
        (None, '"none"'),
        ("a\n'b'", "\"a\\n'b'\""),
        ([1, "a", [False]], '[1, "a", [false]]'),
        (list(range(30)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]"),
        ("x" * 78, '"' + "x" * 78 + '"'),
        ("x" * 79, '"' + "x" * 76 + "..."),
        (Word("1e3", 1000.0), "1000.0"),
    ],
    ids=range(12),
)
def test_values_as_messages_show_them(value: object, text: str) -> None:
    assert show(value) == text
    assert len(text) <= 80


def test_tuples_within_tuples_become_lists() -> None:
    assert plain(((1, (2, "a")), [3], "b")) == [[1, [2, "a"]], [3], "b"]
    assert plain("ab") == "ab"
    assert plain(None) is None


def test_bounds_hold_at_their_edges() -> None:
    closed, opened = Range(low=0, high=1), Range(above=0, below=1)
    for value in (0.0, 1.0):
        assert fit(float, value, closed) == value
        with pytest.raises(Misfit):
            fit(float, value, opened)
    for value in (-1e-9, 1 + 1e-9):
        with pytest.raises(Misfit):
            fit(float, value, closed)
    assert fit(float, 1e-9, opened) == 1e-9


def test_a_word_is_first_what_it_reads_as_and_then_what_is_written() -> None:
    assert fit(str, Word('"a b"', "a b")) == "a b", "quotes on a command line are no part of a text"
    assert fit(str, Word("1e3", 1000.0)) == "1e3"
    assert fit(float, Word("1e3", 1000.0)) == 1000.0


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (int, True, "a whole number"),
        (float, False, "a number"),
        (float, float("inf"), "finite"),
        (float, float("-inf"), "finite"),
        (float, float("nan"), "finite"),
        (str, "a\0b", "NUL"),
        (int | None, "nothing", 'a whole number or "none"|a whole number'),
    ],
)
def test_what_does_not_fit_a_setting(kind: Any, value: object, reason: str) -> None:
    with pytest.raises(Misfit, match=reason):
        fit(kind, value)


def test_none_is_a_word_of_a_configuration() -> None:
    assert [fit(str | None, value) for value in (None, "none", "None")] == [None, None, "None"]


def test_numbers_of_numpy_are_numbers() -> None:
    def made(setup: object, *, width: int = 1, rate: float = 0.5, on: bool = False) -> None: ...

    found = check("it", settings_of(made), {"width": np.int64(3), "rate": np.float32(0.25), "on": np.bool_(True)})
    assert found == {"width": 3, "rate": 0.25, "on": True}
    assert [type(value) for value in found.values()] == [int, float, bool]
