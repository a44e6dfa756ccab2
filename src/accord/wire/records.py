"""Reading JSON that somebody else may have written: bounded before it is parsed, and held to its fields after."""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from accord.errors import DataError

STRING = re.compile(r'"[^"]*"')  # once escaped quotes are gone
BRACKET = re.compile(r"[\[\]{}]")
HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")  # one half of a pair of escapes; alone it is no text
LONGEST_NUMBER = 20  # digits of the largest 64-bit number

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80


class Bounds(NamedTuple):
    """What is refused before it is parsed."""

    size: int  # bytes
    depth: int  # brackets within brackets
    entries: int  # commas and opening brackets: at least the number of values


class Field(NamedTuple):
    """What may stand in one field of a record."""

    fits: Callable[[Any], bool]
    allowed: str  # "it must be ..."


def shown(value: object) -> str:
    """A value as an error message may print it: never longer than a line or two."""
    return _short.repr(value)


def parse(data: bytes, bounds: Bounds, what: str, kind: type = dict) -> Any:
    """The JSON object (or list) in `data`; DataError for anything else."""
    if len(data) > bounds.size:
        raise DataError(f"{what} has {len(data)} bytes, more than the {bounds.size} allowed")
    try:
        text = data.decode()
        _survey(text, bounds)
        value = json.loads(
            text,
            object_pairs_hook=_distinct,
            parse_constant=_no_constant,
            parse_int=_whole_number,
            parse_float=_real_number,
        )
        if HALF_CHARACTER.search(text):
            json.dumps(value, ensure_ascii=False).encode()  # fails where a half stands alone
    except (ValueError, RecursionError) as error:
        raise DataError(f"{what} cannot be read as JSON: {error}") from error
    if type(value) is not kind:
        raise DataError(f"{what} must hold a JSON {'object' if kind is dict else 'list'}, it holds {shown(value)}")
    return value


def check(record: Mapping[str, Any], fields: Mapping[str, Field], what: str) -> None:
    """DataError unless `record` has exactly these fields, with values that fit."""
    for name, field in fields.items():
        if name not in record:
            raise DataError(f"{what} has no field {name!r}")
        if not field.fits(record[name]):
            raise DataError(f"{what}: {name} is {shown(record[name])}, it must be {field.allowed}")
    for name in record:
        if name not in fields:
            raise DataError(f"{what} has an unknown field {shown(name)}; allowed: {', '.join(fields)}")


def is_whole(value: object) -> bool:
    """Whether it is a whole number, not negative (JSON's true is none, though Python's is)."""
    return type(value) is int and value >= 0


def text(pattern: str, allowed: str) -> Field:
    """Text that matches the whole pattern."""
    form = re.compile(pattern, re.ASCII | re.DOTALL)
    return Field(lambda value: isinstance(value, str) and form.fullmatch(value) is not None, allowed)


WHOLE = Field(is_whole, "a whole number, not negative")
SHA256 = text("[0-9a-f]{64}", "64 hexadecimal digits")
ANY_TEXT = text(".*", "text")
TEXTS = Field(
    lambda value: isinstance(value, dict) and all(isinstance(text, str) for text in value.values()), "names with texts"
)


def _survey(text: str, bounds: Bounds) -> None:
    """Depth and number of values, read off the brackets and commas that stand outside of strings."""
    outside = STRING.sub("", text.replace("\\\\", "").replace('\\"', ""))
    if sum(map(outside.count, "[{,")) > bounds.entries:
        raise ValueError(f"more than {bounds.entries} entries")
    depth = 0
    for bracket in BRACKET.finditer(outside):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > bounds.depth:
            raise ValueError(f"nested more than {bounds.depth} deep")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for name, value in pairs:
        if name in record:
            raise ValueError(f"the name {shown(name)} appears twice")
        record[name] = value
    return record


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _whole_number(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _real_number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{shown(digits)} is too large a number")
    return value
