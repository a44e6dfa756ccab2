"""Does a value fit an annotated type? One function answers, `fit`; the rest explains what would have fitted.

A setting's type is bool, int, float, str, `Literal[...]`, a tuple or list of these, or a union with None.
"""

from __future__ import annotations

import math
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from accord.errors import nearest
from accord.settings.bounds import Range

LONGEST = 80  # characters that a message quotes
NONE = "none"  # how a configuration file, which has no null, says None


class Misfit(Exception):  # noqa: N818 - not an error by itself: the reader collects these into one ConfigError
    """Why a value does not fit, as the end of a sentence that begins with the key."""


@dataclass(frozen=True)
class Word:
    """A value from the command line: what it reads as, and the text itself in case a string is wanted."""

    text: str
    value: object


def fit(kind: Any, value: object, bounds: Range | None = None) -> object:
    """The value as `kind` wants it (an int becomes a float, a list a tuple), or Misfit."""
    if isinstance(value, Word):
        try:
            return fit(kind, value.value, bounds)
        except Misfit as misfit:
            try:
                return fit(kind, value.text, bounds)
            except Misfit:
                raise misfit from None
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner = next((m for m in args[1:] if isinstance(m, Range)), bounds)
        return fit(args[0], value, inner)
    if origin in (Union, types.UnionType):
        return _union(kind, value, bounds)
    if origin is Literal:
        return _choice(args, value)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return _sequence(kind, value, bounds)
    if kind is float or kind is int:
        return _number(kind, value, bounds)
    if kind is bool:
        if isinstance(value, bool):
            return value
        raise Misfit(f"must be {expected(bool)}")
    if kind is str:
        return _string(value)
    raise TypeError(f"a setting cannot have the type {kind!r}; use bool, int, float, str, Literal, tuple or list")


def expected(kind: Any, plural: bool = False) -> str:
    """A type in words."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return expected(args[0], plural)
    if origin in (Union, types.UnionType):
        words = [expected(a, plural) for a in args if a is not type(None)]
        return " or ".join([*words, f'"{NONE}"'] if type(None) in args else words)
    if origin is Literal:
        return "one of " + ", ".join(str(a) for a in args) if len(args) > 1 else show(args[0])
    if origin is tuple and args[-1] is not Ellipsis:
        return f"a list of {len(args)} {expected(args[0], plural=True)}"
    if origin is not None:
        return f"a list of {expected(args[0], plural=True)}"
    singular, many = {
        bool: ("true or false", "true or false"),
        int: ("a whole number", "whole numbers"),
        float: ("a number", "numbers"),
        str: ("a string", "strings"),
    }.get(kind, (str(kind), str(kind)))
    return many if plural else singular


def show(value: object) -> str:
    """A value as a configuration file would write it, cut when it is long."""
    if isinstance(value, Word):
        value = value.value
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, str):
        text = '"' + repr(value)[1:-1] + '"'
    elif value is None:
        text = f'"{NONE}"'
    elif isinstance(value, (list, tuple)):
        text = "[" + ", ".join(show(v) for v in value[:20]) + "]"
    elif isinstance(value, int) and abs(value) >= 2**63:
        text = "a number of more than 64 bits"  # str() of a huge int is an error of its own
    else:
        text = str(value)
    return cut(text)


def cut(text: str) -> str:
    """A text as a message may quote it."""
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _number(kind: type[int] | type[float], value: object, bounds: Range | None) -> float | int:
    allowed = int if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed):
        raise Misfit(f"must be {expected(kind)}{_unquote(value)}")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise Misfit(f"must be {expected(kind)} of at most 64 bits")
    number = kind(value)
    if not math.isfinite(number):
        raise Misfit("must be a finite number")
    if bounds is not None and number not in bounds:
        raise Misfit(f"must be {bounds}")
    return number


def _unquote(value: object) -> str:
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return ""
        return "; write it without quotes"
    return ""


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise Misfit(f"must be {expected(str)}; write it in quotes")
    if "\0" in value:
        raise Misfit("must not contain a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Misfit("must be text that can be written as UTF-8") from None
    return value


def _choice(allowed: tuple[object, ...], value: object) -> object:
    for choice in allowed:
        if choice == value and type(choice) is type(value):
            return choice
    words = [str(a) for a in allowed]
    hint = nearest(value, words) if isinstance(value, str) else ""
    raise Misfit(f"must be one of {', '.join(words)}.{hint}")


def _union(kind: Any, value: object, bounds: Range | None) -> object:
    members = get_args(kind)
    if type(None) in members and (value is None or value == NONE):
        return None
    misfits: list[Misfit] = []
    for member in members:
        if member is not type(None):
            try:
                return fit(member, value, bounds)
            except Misfit as misfit:
                misfits.append(misfit)
    raise misfits[0] if len(misfits) == 1 else Misfit(f"must be {expected(kind)}")


def _sequence(kind: Any, value: object, bounds: Range | None) -> object:
    if not isinstance(value, (list, tuple)):
        raise Misfit(f"must be {expected(kind)}, such as [a, b]")
    origin, args = get_origin(kind), get_args(kind)
    if origin is tuple and args[-1] is not Ellipsis:
        if len(value) != len(args):
            raise Misfit(f"must be {expected(kind)}")
        members = list(args)
    else:
        members = [args[0]] * len(value)
    items = []
    for position, (member, item) in enumerate(zip(members, value, strict=True), start=1):
        try:
            items.append(fit(member, item, bounds))
        except Misfit as misfit:
            raise Misfit(f"must be {expected(kind)}: item {position}, {show(item)}, {misfit}") from None
    return items if origin is list else tuple(items)


def plain(value: object) -> object:
    """The value with tuples as lists, as JSON and TOML know them."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value
