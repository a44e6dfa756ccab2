"""JSON from outside: bounded, without constants and doubled names, held to its fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.errors import DataError
from accord.wire.records import SHA256, TEXTS, WHOLE, Bounds, check, parse, shown, text

BOUNDS = Bounds(size=100_000, depth=4, entries=1000)
LEAVES = st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False)
LEAVES |= st.text(max_size=10)


@given(
    st.dictionaries(st.text(max_size=10), LEAVES | st.lists(LEAVES, max_size=4) | st.dictionaries(st.text(), LEAVES))
)
def test_what_json_writes_is_read(record: dict[str, Any]) -> None:
    for ascii in (True, False):
        data = json.dumps(record, ensure_ascii=ascii).encode()
        assert parse(data, BOUNDS, "it") == record


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:\\ud8019NaN.eE- ', max_size=60).map(str.encode))
def test_any_bytes_are_an_object_or_refused(data: bytes) -> None:
    try:
        value = parse(data, BOUNDS, "it")
    except DataError:
        return
    assert value == json.loads(data)
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "cannot be read as JSON"),
        (b"\xff{}", "cannot be read as JSON"),
        (b"[1]", r"must hold a JSON object, it holds \[1\]"),
        (b"null", "must hold a JSON object"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": -Infinity}', "-Infinity is no number"),
        (b'{"a": 1e999}', "'1e999' is too large"),
        (b'{"a": ' + b"1" * 21 + b"}", "21 digits"),
        (b'{"a": 1, "b": {"a": 1, "a": 2}}', "the name 'a' appears twice"),
        (b'{"a": "\\ud800"}', "surrogates"),
        (b'{"a":[[[[1]]]]}', "nested more than 4 deep"),
        (b'{"a":[1],"b":{"c":[[[1]]]}}', "nested more than 4 deep"),
        (b"[" * 1001, "more than 1000 entries"),
        (b"]" * 1001, "cannot be read as JSON"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "more than 1000 entries"),
        (b'{"a":[' + b"1," * 1000 + b"1]}", "more than 1000 entries"),
        (b'{"a": "' + b"x" * 100_000 + b'"}', "100009 bytes, more than the 100000"),
    ],
)
def test_the_sentence(data: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        parse(data, BOUNDS, "it")


def test_what_is_as_deep_and_as_long_as_allowed_is_read() -> None:
    side_by_side = {"a": [[1], [2]], "b": {"c": [[1]]}, "d": [[[1]]]}
    assert parse(json.dumps(side_by_side).encode(), BOUNDS, "it") == side_by_side
    for count in (999, 1000):  # a bracket, another, and a comma between every two numbers
        data = json.dumps({"a": [1] * count}).encode()
        if count + 1 <= 1000:
            assert len(parse(data, BOUNDS, "it")["a"]) == count
        else:
            with pytest.raises(DataError, match="more than 1000 entries"):
                parse(data, BOUNDS, "it")


def test_brackets_and_commas_inside_of_text_do_not_count() -> None:
    record = {"a": "[[[[[[{{{{" * 50 + ",,,,\\" * 500 + '"'}
    assert parse(json.dumps(record).encode(), BOUNDS, "it") == record
    assert parse(b'["x"]', BOUNDS, "it", list) == ["x"]


def test_a_backslash_at_the_end_of_a_text_hides_nothing_and_uncovers_nothing() -> None:
    record = {"a": "\\", "b": "[[[[[[", "c": '\\"[[[[[['}
    assert parse(json.dumps(record).encode(), BOUNDS, "it") == record
    deep = {"a": "\\", "b": [[[[1]]]], "c": ""}
    with pytest.raises(DataError, match="nested more than 4 deep"):
        parse(json.dumps(deep).encode(), BOUNDS, "it")


FIELDS = {"round": WHOLE, "sum": SHA256, "versions": TEXTS, "word": text("[a-z]+", "small letters")}
GOOD = {"round": 3, "sum": "ab" * 32, "versions": {"a": "1"}, "word": "x"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"round": True}, "round is True, it must be a whole number, not negative"),
        ({"round": -1}, "round is -1"),
        ({"round": 1.0}, "round is 1.0"),
        ({"sum": "AB" * 32}, "64 hexadecimal digits"),
        ({"sum": "ab" * 31}, "64 hexadecimal digits"),
        ({"sum": None}, "64 hexadecimal digits"),
        ({"versions": {"a": 1}}, "names with texts"),
        ({"versions": []}, "names with texts"),
        ({"word": "x\n"}, "small letters"),
        ({"word": "ä"}, "small letters"),
        ({"more": 1}, "unknown field 'more'; allowed: round, sum, versions, word"),
    ],
)
def test_fields_are_held_to_their_kind(changes: dict[str, Any], reason: str) -> None:
    check(GOOD, FIELDS, "run.json")
    with pytest.raises(DataError, match=f"run.json.*{reason}"):
        check({**GOOD, **changes}, FIELDS, "run.json")
    for name in GOOD:
        with pytest.raises(DataError, match=f"run.json has no field '{name}'"):
            check({k: v for k, v in GOOD.items() if k != name}, FIELDS, "run.json")


def test_what_is_shown_is_short() -> None:
    assert len(shown("x" * 10**6)) < 100
    assert len(shown([["y" * 1000] * 1000] * 1000)) < 5000
