"""Files of JSON lines, read line by line: what is whole, what is cut short, what is too long."""

from __future__ import annotations

import io

import pytest

from accord.wire.lines import BOUNDS, Line, lines
from accord.wire.records import Bounds


def found(data: bytes) -> list[Line]:
    return list(lines(io.BytesIO(data)))


def test_lines_are_counted_from_one_and_keep_their_bytes() -> None:
    assert found(b"") == []
    assert found(b'{"a": 1}\n{"b": [2]}\n') == [
        Line(1, b'{"a": 1}\n', {"a": 1}, "", True),
        Line(2, b'{"b": [2]}\n', {"b": [2]}, "", True),
    ]


def test_a_damaged_line_is_said_and_the_next_are_read() -> None:
    one, two, three = found(b'{"a": \n[1]\n{"c": 3}\n')
    assert (one.number, one.raw, one.record, one.whole) == (1, b'{"a": \n', None, True)
    assert one.problem
    assert one.problem != "it is cut short"
    assert (two.number, two.record) == (2, None)
    assert two.problem
    assert three == Line(3, b'{"c": 3}\n', {"c": 3}, "", True)


def test_an_empty_line_is_a_line_that_cannot_be_read() -> None:
    one, two = found(b'\n{"a": 1}\n')
    assert (one.number, one.raw, one.record, one.whole) == (1, b"\n", None, True)
    assert one.problem
    assert two == Line(2, b'{"a": 1}\n', {"a": 1}, "", True)


def test_the_last_line_may_lack_its_end() -> None:
    assert found(b'{"a": 1}\n{"b"')[1] == Line(2, b'{"b"', None, "it is cut short", False)
    assert found(b'{"a": 1}') == [Line(1, b'{"a": 1}', {"a": 1}, "", False)]


@pytest.mark.parametrize("length", [17, 18, 33, 48, 49, 50, 80])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_line_that_is_too_long_is_one_line(monkeypatch: pytest.MonkeyPatch, length: int, end: bytes) -> None:
    """At most 16 bytes with its end, here; whatever comes after it is read."""
    monkeypatch.setattr("accord.wire.lines.BOUNDS", Bounds(size=16, depth=4, entries=100))
    too_long = b"1" * (length - len(end)) + end
    wanted = [Line(1, b"", None, "it has more than the 16 bytes allowed", bool(end))]
    assert found(too_long) == wanted
    if end:
        last = b'{"a": 12345678}\n'  # 16 bytes
        assert found(too_long + last) == [*wanted, Line(2, last, {"a": 12345678}, "", True)]


def test_a_line_of_millions_of_clients_fits() -> None:
    assert BOUNDS.size >= 5_000_000 * 12
    assert BOUNDS.entries >= 5_000_000
