"""A number as a paper prints it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from accord.errors import ConfigError

_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?"
_FORM = re.compile(rf"({_NUMBER})(?: ?± ?({_NUMBER}))?(?: \(.*\))?")


@dataclass(frozen=True)
class Printed:
    """The text, digit for digit, and what it says; no value where a dash was printed, or nothing."""

    text: str
    value: float | None = None
    deviation: float | None = None


NOTHING = Printed("-")


def printed(text: str) -> Printed:
    """Read what is printed in a cell: a number, perhaps with its deviation and a remark in brackets.

    >>> printed("94.38±1.72")
    Printed(text='94.38±1.72', value=94.38, deviation=1.72)
    >>> printed("828 (1.0X)").value
    828.0
    """
    if text == "-":
        return NOTHING
    found = _FORM.fullmatch(text)
    if found is None:
        raise ConfigError(f"{text!r} is no printed number: write it as 94.38, 94.38±1.72, 828 (1.0X) or -")
    value, deviation = (None if part is None else float(part) for part in found.groups())
    assert value is not None
    if not math.isfinite(value):
        raise ConfigError(f"{text!r} is too large for a number")
    return Printed(text, value, deviation)
