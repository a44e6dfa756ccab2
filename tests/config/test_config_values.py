"""One value against one type."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest

from accord.settings import AtLeast, Misfit, Range, Word, expected, fit, show


@pytest.mark.parametrize(
    ("kind", "value", "result"),
    [
        (int, 3, 3),
        (float, 3, 3.0),
        (float, 0.5, 0.5),
        (bool, True, True),
        (str, "a", "a"),
        (Literal["a", "b"], "b", "b"),
        (tuple[float, ...], [1, 2.5], (1.0, 2.5)),
        (tuple[float, float], [1, 2], (1.0, 2.0)),
        (list[int], (1, 2), [1, 2]),
        (tuple[str, ...], [], ()),
        (int | None, "none", None),
        (int | None, None, None),
        (int | None, 4, 4),
        (int | str, "x", "x"),
        (tuple[Annotated[int, AtLeast(1)], ...], [1, 2], (1, 2)),
        (str, Word("2024-01-01", "anything else than a string"), "anything else than a string"),
        (str, Word("12", 12), "12"),
        (str, Word("true", True), "true"),
        (float, Word("12", 12), 12.0),
        (Literal["1", "2"], Word("2", 2), "2"),
    ],
)
def test_fits(kind: Any, value: object, result: object) -> None:
    found = fit(kind, value)
    assert found == result
    assert type(found) is type(result)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (int, True, "a whole number"),
        (int, 1.0, "a whole number"),
        (int, "3", "without quotes"),
        (int, 2**63, "64 bits"),
        (float, 10**400, "64 bits"),
        (float, "1e-3", "without quotes"),
        (float, "fast", "must be a number"),
        (float, False, "must be a number"),
        (float, float("nan"), "finite"),
        (float, float("inf"), "finite"),
        (bool, 1, "true or false"),
        (bool, "true", "true or false"),
        (str, 5, "in quotes"),
        (str, "a\0b", "NUL"),
        (str, "\udc80", "UTF-8"),
        (Literal["sgd", "adam"], "sdg", "one of sgd, adam. Did you mean 'sgd'?"),
        (Literal[1, 2], True, "one of 1, 2"),
        (tuple[float, ...], 0.5, "a list of numbers"),
        (tuple[float, ...], [0.5, "x"], 'item 2, "x", must be a number'),
        (tuple[float, float], [0.5], "a list of 2 numbers"),
        (int | None, "never", "must be a whole number"),
        (int | bool, "x", "a whole number or true or false"),
        (Annotated[float, Range(above=0)], 0, "must be above 0"),
        (tuple[Annotated[int, AtLeast(1)], ...], [1, 0], "at least 1"),
        (int, Word("many", "many"), "a whole number"),
    ],
)
def test_misfits(kind: Any, value: object, said: str) -> None:
    with pytest.raises(Misfit) as caught:
        fit(kind, value)
    assert said in str(caught.value)


def test_bounds_hold_for_every_item() -> None:
    assert fit(tuple[float, ...], [0, 1], Range(0, 1)) == (0.0, 1.0)
    with pytest.raises(Misfit, match=r"item 2, 1\.5, must be at least 0 and at most 1"):
        fit(tuple[float, ...], [0, 1.5], Range(0, 1))


def test_a_type_that_no_file_can_hold_is_a_programming_error() -> None:
    with pytest.raises(TypeError, match="cannot have the type"):
        fit(dict, {})


def test_words_for_types() -> None:
    assert expected(tuple[int, ...] | None) == 'a list of whole numbers or "none"'
    assert expected(Annotated[str, "doc"]) == "a string"


def test_values_are_shown_as_in_a_file_and_cut() -> None:
    assert show(True) == "true"
    assert show('a"b\x1b') == '"a"b\\x1b"'
    assert show([1, "x", None]) == '[1, "x", "none"]'
    assert len(show("x" * 1000)) == 80
    assert show(10**5000) == "a number of more than 64 bits"


def test_only_numbers_are_to_be_written_without_quotes() -> None:
    for value, said in (
        ("fast", "must be a number"),
        ("0.5", "must be a number; write it without quotes"),
        ([1], "must be a number"),
    ):
        with pytest.raises(Misfit) as caught:
            fit(float, value)
        assert str(caught.value) == said
